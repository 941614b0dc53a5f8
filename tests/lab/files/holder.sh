#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The first process of a lab's namespaces. It lays out the front-end, says that
# it is ready, and then only keeps the namespaces alive and collects orphans.
# When it ends, the kernel ends everything else in the lab.
# Arguments: lab folder, number of nodes, prefix of addresses/length, mode, the
# broker's user, the root whose /usr holds Slurm, and "owned" where the lab is to
# end when file descriptor 3 does.
set -eu
PATH=/usr/sbin:/usr/bin:/sbin:/bin
dir=$1 nodes=$2 cidr=$3 mode=$4 broker=$5 system=${6%/} owned=$7

# /proc is still the host's here, so this is the pid as the host sees it.
read -r pid _ </proc/self/stat
echo "$pid" >"$dir/run/holder.pid"

hostname ctl
mount -t proc proc /proc

{
	echo "link set lo up"
	echo "link add br0 type bridge forward_delay 0"
	echo "addr add $cidr dev br0"
	echo "link set br0 up"
	i=1
	while [ "$i" -le "$nodes" ]; do
		echo "tuntap add dev tap$i mode tap user $(id -u)"
		echo "link set tap$i master br0 up"
		i=$((i + 1))
	done
} | ip -batch -

# /run goes first, because it then holds the way to the lab's folder, which may
# itself be below a path that is covered next.
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -m 755 /run/lab /run/lock /run/slurm /run/slurmrestd /run/munge /run/mysqld \
	/run/kernel-broker
mount --bind "$dir" /run/lab
cd /run/lab

# With Slurm of another root the front-end has that root's /usr and /etc. QEMU stays
# the host's: machines run in a copy of the host's mounts, with the lab's folder.
if [ -n "$system" ]; then
	mkdir /run/machines
	mount --rbind / /run/machines
	mount -t tmpfs -o mode=755 tmpfs /run/machines/run
	mkdir /run/machines/run/lab
	mount --bind "$dir" /run/machines/run/lab
	mount --rbind "$system/usr" /usr
	mount --rbind "$system/etc" /etc
fi

# Puts the lab's files and mount points, which the host may not have, over a
# folder of the host's. An overlay does it; in a user namespace the kernel
# refuses one over a folder with mounts in it (as /etc of a container), and then
# a folder of links does.
layer() {
	[ -d "$1" ] || { echo "$1: not on this host" >&2; exit 1; }
	mount -t overlay overlay -o "ro,lowerdir=/run/lab/root$1:$1" "$1" 2>/dev/null ||
		links "$1"
}
links() {
	b=/bin/busybox # static: there is a moment without libraries
	mkdir -p "/run/host$1"
	mount --rbind "$1" "/run/host$1"
	mount -t tmpfs -o mode=755 tmpfs "$1"
	$b cp -r "/run/lab/root$1/." "$1"
	for f in "/run/host$1"/* "/run/host$1"/.[!.]*; do
		here=$1/${f##*/}
		if [ -e "$here" ] || [ -L "$here" ]; then
			continue
		elif [ -L "$f" ]; then
			$b cp -P "$f" "$here"
		elif [ -e "$f" ]; then
			$b ln -s "$f" "$here"
		fi
	done
}
layer /etc
layer /usr/lib
layer /usr/libexec
layer /usr/local/bin

# What is installed on this host, for whoever builds kernels here: dpkg says which
# source it is, and the front-end's /var has nothing of that. Another root has no
# compilers, so nothing is built there.
over() {
	[ -z "$system" ] || return 0
	[ ! -d "$1" ] || { mkdir -p "$2" && mount --rbind "$1" "$2"; } ||
		echo "$2: not to be had, so no kernels can be built here" >&2
}
over /var/lib/dpkg /run/host/dpkg
over /var/lib/apt /run/host/apt

bind() { mount --bind "/run/lab/$1" "$2"; }
bind share/conf/slurm /etc/slurm
bind share/conf/munge /etc/munge
bind share/conf/kernel-broker /etc/kernel-broker
bind product/usr/lib/kernel-broker /usr/lib/kernel-broker
bind product/usr/libexec/kernel-broker /usr/libexec/kernel-broker
bind share/home /home
bind var /var
over /run/host/dpkg /var/lib/dpkg
over /run/host/apt /var/lib/apt
bind logs /var/log
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs -o mode=1777 tmpfs /dev/shm

mkdir -m 750 /var/lib/kernel-broker/hook
: >/var/log/kernel-broker/hook.log

# With one user there is nobody to give things to.
if [ "$mode" != single ]; then
	chown -R slurm:slurm /run/slurm /var/log/slurm /var/lib/slurm/slurmctld
	chown "$broker:$broker" /run/kernel-broker /var/lib/kernel-broker \
		/var/log/kernel-broker
	chown mysql:mysql /run/mysqld /var/lib/mysql /var/log/mysql
	chown slurmrestd:slurmrestd /run/slurmrestd /var/log/slurmrestd
	# slurmctld's hooks run as Slurm's user, whoever the broker is.
	chown slurm:slurm /var/lib/kernel-broker/hook /var/log/kernel-broker/hook.log
	[ ! -e /etc/slurm/slurmdbd.conf ] || chown slurm:slurm /etc/slurm/slurmdbd.conf
	chown munge:munge /run/munge /var/lib/munge /var/log/munge \
		/etc/munge /etc/munge/munge.key
	for home in /home/*; do
		chown -R "${home##*/}:${home##*/}" "$home"
	done
fi
chmod 700 /var/lib/munge /etc/munge /var/lib/mysql

trap 'exit 0' TERM
if [ "$owned" = owned ]; then
	(read -r _ <&3 || kill -TERM 1) &
	exec 3<&-
fi
: >/run/lab/run/holder.ready
while :; do
	sleep 86400 &
	# The shell's wait collects whatever ends, its own child or not.
	wait $! || :
done
