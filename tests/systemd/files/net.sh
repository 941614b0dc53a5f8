#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Gives the machine the name and the address of its kernel's command line.
read -r cmdline </proc/cmdline
for arg in $cmdline; do
	case $arg in
	kb.node=*) echo "${arg#*=}" >/proc/sys/kernel/hostname ;;
	kb.ip=*) ip=${arg#*=} ;;
	esac
done
# Where udev would load the driver later.
modprobe -q virtio_net || :
set -e
ip link set lo up
ip addr replace 10.0.2.15/24 dev eth0
ip link set eth0 up
ip addr replace "$ip" dev eth1
ip link set eth1 up
