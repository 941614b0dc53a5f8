#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Brings a node up from its read-only disk: file systems, network, munge.
# What runs after this is in /etc/inittab.
PATH=/usr/sbin:/usr/bin
export PATH
umask 022

mount -t proc proc /proc
mount -t sysfs sysfs /sys
[ ! -d /sys/kernel/debug ] || mount -t debugfs debugfs /sys/kernel/debug
[ ! -d /sys/kernel/security ] || mount -t securityfs securityfs /sys/kernel/security
[ -c /dev/null ] || mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts -o mode=620,ptmxmode=666 devpts /dev/pts
for dir in /run /var /tmp /dev/shm; do
	mount -t tmpfs tmpfs "$dir"
done
chmod 1777 /tmp /dev/shm
mkdir -p /run/munge /run/kernel-broker /run/lock /var/lib/munge \
	/var/lib/slurm/slurmd /var/lib/kernel-broker /var/log \
	/var/cache/kernel-broker /var/spool /var/tmp

read -r cmdline </proc/cmdline
for arg in $cmdline; do
	case $arg in
	kb.node=*) node=${arg#*=} ;;
	kb.ip=*) ip=${arg#*=} ;;
	esac
done
if [ -z "$node" ] || [ -z "$ip" ]; then
	echo "kblab: kb.node= and kb.ip= are missing on the kernel command line"
fi
hostname "$node"
ip link set lo up
ip addr add "$ip" dev eth0
ip link set eth0 up

# Two shares: one for all nodes (homes, configuration), one for this node.
nine=trans=virtio,version=9p2000.L,msize=262144
mount -t 9p -o "$nine" lab /mnt/lab || echo "kblab: share lab: not mounted"
mount -t 9p -o "$nine" node /mnt/node || echo "kblab: share node: not mounted"
mount --bind /mnt/lab/home /home
mount --bind /mnt/node/cache /var/cache/kernel-broker
mount --bind /mnt/node/state /var/lib/kernel-broker
mount --bind /mnt/node/log /var/log
cp -r /mnt/lab/conf/etc /run/etc

# slurmd wants a cgroup file system even when it does not track with it, and
# without systemd the slice it expects has to be made.
mount -t cgroup2 cgroup2 /sys/fs/cgroup && mkdir -p /sys/fs/cgroup/system.slice
if grep -q '^ConstrainCores=yes' /mnt/lab/conf/slurm/cgroup.conf; then
	for dir in /sys/fs/cgroup /sys/fs/cgroup/system.slice; do
		for controller in cpu cpuset memory; do
			echo "+$controller" >"$dir/cgroup.subtree_control"
		done
	done
fi

mkdir -m 700 /run/munge-key
cp /mnt/lab/conf/munge/munge.key /run/munge-key/munge.key
cp /mnt/lab/token /run/kblab.token
chmod 400 /run/munge-key/munge.key /run/kblab.token
chown 0:0 /run/munge-key/munge.key
munged --force --key-file=/run/munge-key/munge.key
echo "kblab: $node is up on $(uname -r)"
