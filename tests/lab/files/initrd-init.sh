#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=dash
# First program of a kernel with modules: insert what the machine needs, then
# go on to the disk image, as a distribution's initrd does.
b=/bin/busybox
$b mount -t devtmpfs dev /dev
$b mount -t proc proc /proc
while read -r m; do
	$b insmod "/modules/$m.ko" || echo "kblab: module $m: not inserted"
done </modules/order

root=/dev/vda init=/sbin/init
read -r cmdline </proc/cmdline
for arg in $cmdline; do
	case $arg in
	root=*) root=${arg#*=} ;;
	init=*) init=${arg#*=} ;;
	esac
done
tries=50
until [ -b "$root" ] || [ "$tries" = 0 ]; do
	$b sleep 0.1
	tries=$((tries - 1))
done
if ! $b mount -t ext4 -o ro "$root" /root; then
	echo "kblab: root $root: not mounted"
	exit 1 # the kernel panics, and panic= resets the machine
fi
$b mount --move /dev /root/dev
$b umount /proc
exec $b switch_root /root "$init"
