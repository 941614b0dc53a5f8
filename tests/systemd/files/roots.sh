#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the disk of machines with other roots, and a copy of it with another UUID:
# Debian's root with the probe and the kernels to boot.
#   roots.sh DEBIAN FOLDER KERNELS PROBE IMAGE COPY UUID
set -eu
debian=$1 dir=$2 kernels=$3 probe=$4 image=$5 copy=$6 uuid=$7
root=$dir/root own=$dir/files
mkdir "$root"
tar -C "$root" --numeric-owner -xpf "$debian"

# shellcheck source=machine.sh
. "$own/machine.sh"
# The kernel's arguments name the root, and the agent's no other.
: >"$root/etc/fstab"
chroot "$root" systemctl -q disable nfs-server rpcbind.socket
install -m 0755 "$probe" "$root/usr/local/libexec/probe"
install -D -m 0644 "$kernels/server/bzImage" "$root/srv/server/image"
install -D -m 0644 "$root"/boot/vmlinuz-* "$root/srv/stock/image"
install -m 0644 "$own/server.json" "$root/srv/server/kernel.json"
install -m 0644 "$own/stock.json" "$root/srv/stock/kernel.json"
echo '/srv/root *(rw,no_root_squash,no_subtree_check,insecure)' >"$root/etc/exports"
# The boot loader's part: the kernel and an initrd.
cp "$root"/boot/vmlinuz-* "$dir/vmlinuz"
cp "$root"/boot/initrd.img-* "$dir/initrd.img"

used=$(du -sm "$root" | cut -f1)
mke2fs -q -F -t ext4 -d "$root" -m 0 -U "$uuid" -E nodiscard "$image" "$((used * 5 / 4 + 200))M"
rm -r "$root"
cp --sparse=always "$image" "$copy"
tune2fs -U random "$copy" >"$dir/tune2fs"
