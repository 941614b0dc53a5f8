// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	_ "embed"
	"fmt"
	"time"
)

// Slurm's accounts: slurmdbd with a MariaDB of its own, both on the front-end
// as users of the lab, their files in the lab's folder.

//go:embed files/mariadb.sh
var databaseScript string

const (
	// DatabaseSocket is libmariadb's default in bookworm and trixie; in sid that is in /run/mariadbd.
	DatabaseSocket  = "/run/mysqld/mysqld.sock"
	slurmdbdPidFile = "/run/slurm/slurmdbd.pid"
	// accountOfAll is the default account of the lab's users.
	accountOfAll = "users"
)

// accountingSettings are the lines of slurm.conf.
func accountingSettings(o Options) []setting {
	if !o.Slurm.Accounting {
		return []setting{{"AccountingStorageType", "accounting_storage/none"}}
	}
	return []setting{
		{"AccountingStorageType", "accounting_storage/slurmdbd"},
		{"AccountingStorageHost", frontHost},
		{"AccountingStorageEnforce", "associations,limits"},
	}
}

// SlurmdbdConf is slurmdbd.conf of a daemon on the host, which runs as the user. It has no password: the database knows
// the user by its uid.
func SlurmdbdConf(host, user string) string {
	return fmt.Sprintf(`# Written by the cluster; the next "up" writes it again.
AuthType=auth/munge
DbdHost=%s
SlurmUser=%s
PidFile=%s
DebugLevel=verbose
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=%s
StorageLoc=slurm_acct_db
`, host, user, slurmdbdPidFile, user)
}

// DatabaseCommand runs a MariaDB for slurmdbd, which runs as the user: with its data in /var/lib/mysql and its socket at
// DatabaseSocket.
func DatabaseCommand(user string) []string {
	return []string{"/bin/sh", "-c", databaseScript, "sh", DatabaseSocket, user}
}

// SlurmdbdCommand runs slurmdbd with that database.
func SlurmdbdCommand() []string {
	return []string{"env", "MYSQL_UNIX_PORT=" + DatabaseSocket, "/usr/sbin/slurmdbd", "-D"}
}

// Database returns the handle of slurmdbd's MariaDB, which a lab has with
// SlurmOptions.Accounting.
func (l *Lab) Database() Daemon {
	return Daemon{
		lab: l, name: "mariadbd", user: service(l.state.Mode, "mysql"),
		argv:    DatabaseCommand(service(l.state.Mode, "slurm")),
		pidFile: "/run/mysqld/lab.pid", log: "mysql/mariadbd.log",
		// A client that connects before the server is ready waits.
		ready: []string{"test", "-S", DatabaseSocket},
	}
}

// Slurmdbd returns the handle of slurmdbd, which a lab has with
// SlurmOptions.Accounting.
func (l *Lab) Slurmdbd() Daemon {
	return Daemon{
		lab: l, name: "slurmdbd", user: service(l.state.Mode, "slurm"),
		argv:    SlurmdbdCommand(),
		pidFile: slurmdbdPidFile, log: "slurm/slurmdbd.log",
		ready: []string{"sacctmgr", "--noheader", "list", "cluster"},
	}
}

// startAccounting starts slurmdbd and creates what every site has: the cluster, the broker's user with its level, and an
// account for users.
func (l *Lab) startAccounting(ctx context.Context) error {
	start := time.Now()
	for _, d := range []Daemon{l.Database(), l.Slurmdbd()} {
		if err := d.Start(ctx); err != nil {
			return err
		}
	}
	commands := [][]string{
		{"add", "cluster", "lab"},
		{"add", "account", accountOfAll},
	}
	for _, a := range l.state.Accounts {
		if a.person() {
			commands = append(commands, []string{"add", "user", a.Name, "account=" + accountOfAll})
		}
	}
	if !l.state.Options.WithoutProduct {
		// As docs/ops/install.md requires of a site.
		broker := brokerUser(l.state.Options, l.state.Mode)
		commands = append(commands, []string{"add", "user", broker, "account=root", "adminlevel=Admin"})
	}
	for _, words := range commands {
		if _, err := l.must(ctx, l.root(), append([]string{"sacctmgr", "--immediate"}, words...)...); err != nil {
			return fmt.Errorf("accounts: %w", err)
		}
	}
	l.progress("accounting: slurmdbd with its database after %.1f s", time.Since(start).Seconds())
	return nil
}
