#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The first process of a cluster's namespaces. It gives the cluster a file system
# of its own, says that it is ready, and then only keeps the namespaces alive and
# collects orphans. When it ends, the kernel ends everything else in the cluster.
# Arguments: the cluster's folder, the root whose /usr holds Slurm, the product's
# folder, and the front-end's addresses. It ends when file descriptor 3 does.
set -eu
PATH=/usr/sbin:/usr/bin:/sbin:/bin
dir=$1 system=${2%/} product=$3
shift 3

# /proc is still the host's here, so this is the pid as the host sees it.
read -r pid _ </proc/self/stat
echo "$pid" >"$dir/holder.pid"

hostname front
{
	echo "link set lo up"
	for address; do echo "addr add $address/32 dev lo"; done
} | ip -batch -

root=$dir/root
mount --rbind "$root" "$root"
cd "$root"
mount --rbind "$system/usr" usr
mount --rbind /dev dev
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount --rbind /sys sys
mount -t proc proc proc
mount -t tmpfs -o mode=1777 tmpfs tmp
mount --rbind "$product" opt/kernel-broker
[ ! -d "$system/etc/alternatives" ] || mount --bind "$system/etc/alternatives" etc/alternatives
pivot_root . host
cd /
umount -l /host

chown -R slurm:slurm /run/slurm /var/log/slurm /var/lib/slurm /run/kernel-broker \
	/var/lib/kernel-broker /var/log/kernel-broker
chown -R mysql:mysql /run/mysqld /var/lib/mysql /var/log/mysql
[ ! -e /etc/slurm/slurmdbd.conf ] || chown slurm:slurm /etc/slurm/slurmdbd.conf
chown -R munge:munge /run/munge /var/lib/munge /var/log/munge /etc/munge
chmod 700 /var/lib/munge /etc/munge
for home in /home/*; do
	chown "${home##*/}:${home##*/}" "$home"
done

trap 'exit 0' TERM
(read -r _ <&3 || kill -TERM 1) &
exec 3<&-
: >/ready
while :; do
	sleep 86400 &
	# The shell's wait collects whatever ends, its own child or not.
	wait $! || :
done
