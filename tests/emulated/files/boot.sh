#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The first process of a node from a boot to its end: what a node's kernel and
# init would give it. It is in namespaces of the node's own (processes, mounts,
# host name, time since boot), so that everything on the node ends with it.
# Arguments: the node's name, and what it starts: agent, or slurmd alone.
set -eu
name=$1 starts=$2
trap 'exit 0' TERM
read -r pid _ </proc/self/stat
echo "$pid" >"/nodes/$name/init.pid"
hostname "$name"

mount --bind "/nodes/$name" /machine
mount -t proc proc /proc
# What the node's kernel says of itself.
for file in cmdline sys/kernel/osrelease sys/kernel/random/boot_id; do
	mount --bind "/machine/proc/$file" "/proc/$file"
done
mount --bind /machine/sys/kernel/notes /sys/kernel/notes
mount --bind /usr/bin/uname /emulated/real-uname
mount --bind /emulated/uname /usr/bin/uname

# Memory that is new with each boot, but for MUNGE, which all nodes share.
mount --bind /run/munge /mnt
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/munge /run/kernel-broker
mount --bind /mnt /run/munge
umount /mnt
mount -t tmpfs -o mode=1777 tmpfs /tmp
# Disks that are not.
mount --bind /machine/log /var/log/slurm
mount --bind /machine/spool /var/spool/slurmd
mount --bind /machine/cache /var/cache/kernel-broker
mount --bind /machine/lib /var/lib/kernel-broker

# A reboot is asked of systemd, which is played too.
PATH=/emulated:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
[ "$starts" = agent ] || /usr/sbin/slurmd
while :; do
	if [ "$starts" = agent ] && [ ! -e /machine/no-agent ]; then
		/opt/kernel-broker/bin/kernel-broker-agent --config /etc/kernel-broker/agent.yaml \
			>>/var/log/slurm/agent.log 2>&1 </dev/null &
		echo $! >/run/agent.pid
		wait $! || echo "agent ended: $?" >>/var/log/slurm/agent.log
		rm -f /run/agent.pid
	fi
	sleep 0.2 &
	wait $! || :
done
