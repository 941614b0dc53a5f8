#!/usr/bin/busybox sh
# shellcheck shell=dash
# The guest's first process: mounts, inserts modules, runs the script, sends
# what it left below /out over the second serial port, and switches off. What a
# small kernel does not have (debugfs, a loopback device) is left out.
export PATH=/usr/sbin:/usr/bin HOME=/root TERM=dumb LANG=C

mount -t devtmpfs dev /dev
exec </dev/console >/dev/console 2>&1
mount -t proc proc /proc
mount -t sysfs sys /sys
mkdir -p /dev/shm /dev/pts
mount -t devpts pts /dev/pts 2>/dev/null
mount -t tmpfs shm /dev/shm
mount -t tmpfs tmp /tmp
mount -t tmpfs out /out
[ ! -d /sys/kernel/debug ] || mount -t debugfs debug /sys/kernel/debug
while read -r module; do
	insmod "/modules/$module" || echo "guest: module $module refused"
done </modules/order
ip link set lo up 2>/dev/null

cd /root || exit
/script
code=$?
echo "guest: the script ended with $code"

echo "$code" >/run/exit
: >/run/whole
stty -F /dev/ttyS1 raw -echo 115200
tar -c -C / run/exit out run/whole | gzip -1 >/dev/ttyS1 || echo "guest: the result was not sent"
reboot -f
