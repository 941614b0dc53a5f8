#!/usr/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=dash
# What a kernel shows of itself, and whether it can be left again.
set -u

uname -r >/out/release

# The GNU build id is the note of kind 3 by the name of GNU.
hexdump -ve '1/1 "%02x"' /sys/kernel/notes |
	sed -n 's/.*04000000\(..\)00000003000000474e5500\(.*\)/\1 \2/p' >/out/note
read -r size rest </out/note
printf '%s\n' "$rest" | cut -c "1-$((0x$size * 2))" >/out/build_id

{
	for driver in /sys/bus/*/drivers/*; do
		[ -e "$driver" ] || continue
		basename "$driver"
		[ ! -e "$driver/module" ] || basename "$(readlink "$driver/module")"
	done
	for module in /sys/module/*; do
		basename "$module"
	done
	while read -r first second; do
		echo "${second:-$first}"
	done </proc/filesystems
	[ ! -e /proc/net/packet ] || echo af_packet
} | sort -u >/out/drivers

# Those of the initrd are loaded by now; a kernel may have none.
if [ -e /proc/modules ]; then
	cut -d ' ' -f 1 /proc/modules
fi >/out/modules

if ! kexec -c -i -l /kernel --command-line=quiet >/out/kexec 2>&1; then
	# CONFIG_KEXEC_FILE alone; the agent does the same.
	grep -q 'kexec_load failed: Function not ' /out/kexec || exit 1
	kexec -s -i -l /kernel --command-line=quiet >/out/kexec 2>&1 || exit 1
fi
read -r loaded </sys/kernel/kexec_loaded
[ "$loaded" = 1 ]
