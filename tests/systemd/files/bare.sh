#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the disk of bare machines: Debian's root with Python and ssh, an
# administrator's key, names, addresses and a user, and nothing of Slurm or the
# product. Its /debs becomes FOLDER/repository, where the machines' apt looks.
#   bare.sh DEBIAN FOLDER KEY APT-SOURCE IMAGE
set -eu
debian=$1 dir=$2 key=$3 source=$4 image=$5
root=$dir/root own=$dir/files
mkdir "$root"
tar -C "$root" --numeric-owner -xpf "$debian"
mv "$root/debs" "$dir/repository"
(cd "$dir/repository" && dpkg-scanpackages --multiversion . >Packages 2>/dev/null)

rm -rf "$root"/etc/apt/sources.list.d/* "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/*.bin
echo "deb [trusted=yes] $source ./" >"$root/etc/apt/sources.list"
install -d -m 0700 "$root/root/.ssh"
install -m 0600 "$key" "$root/root/.ssh/authorized_keys"
# shellcheck source=machine.sh
. "$own/machine.sh"
# Several emulated machines that boot at a time are slower than systemd expects.
mkdir -p "$root/etc/systemd/system.conf.d"
printf '[Manager]\nDefaultTimeoutStartSec=15min\n' >"$root/etc/systemd/system.conf.d/lab.conf"
# The boot loader's part: the kernel and the initrd that Debian installed.
cp "$root"/boot/vmlinuz-* "$dir/vmlinuz"
cp "$root"/boot/initrd.img-* "$dir/initrd.img"

chroot "$root" sh -eu <<'EOF'
systemctl -q mask networking.service
useradd --create-home --shell /bin/bash alice
EOF

used=$(du -sm "$root" | cut -f1)
mke2fs -q -F -t ext4 -d "$root" -m 0 -E nodiscard "$image" "$((used + 3072))M"
rm -r "$root"
