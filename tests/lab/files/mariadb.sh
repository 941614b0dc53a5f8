#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# slurmdbd's database, as a user of the lab. The first time its system tables
# are made, of the files that come with the server: the script that does it
# elsewhere needs a tool of a package that starts a service.
# What is written is not synced: that is for a loss of power, and takes longest.
# Arguments: socket, who owns Slurm's tables.
set -eu
socket=$1 owner=$2
data=/var/lib/mysql
# MariaDB has its own name for them since 11.
tables=/usr/share/mariadb/mariadb
[ -e "${tables}_system_tables.sql" ] || tables=/usr/share/mysql/mysql
set -- /usr/sbin/mariadbd --no-defaults --datadir="$data" \
	--innodb-buffer-pool-size=32M --innodb-log-file-size=8M \
	--innodb-flush-method=nosync
if [ ! -e "$data/made" ]; then
	rm -rf "${data:?}"/*
	{
		printf '%s\n' 'CREATE DATABASE mysql;' 'USE mysql;' \
			'SET @auth_root_socket=NULL;'
		cat "${tables}_system_tables.sql" \
			"${tables}_performance_tables.sql" \
			"${tables}_system_tables_data.sql"
		# Known by uid, over the socket only.
		printf '%s\n' 'FLUSH PRIVILEGES;' 'CREATE DATABASE slurm_acct_db;' \
			"CREATE USER $owner@localhost IDENTIFIED VIA unix_socket;" \
			"GRANT ALL ON slurm_acct_db.* TO $owner@localhost;"
	} | "$@" --bootstrap
	: >"$data/made"
fi
exec "$@" --skip-networking --socket="$socket" \
	--pid-file=/run/mysqld/mariadbd.pid
