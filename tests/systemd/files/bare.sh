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
install -m 0755 -t "$root/usr/local/libexec" -D "$own/exec.sh" "$own/net.sh"
install -m 0600 "$own/token" "$root/etc/lab-token"
install -m 0644 -t "$root/etc/systemd/system" "$own/lab-exec@.service" "$own/lab-exec.socket" "$own/lab-net.service"
install -m 0644 -t "$root/etc" "$own/fstab" "$own/hosts"
# Several emulated machines that boot at a time are slower than systemd expects.
mkdir -p "$root/etc/systemd/system.conf.d"
printf '[Manager]\nDefaultTimeoutStartSec=15min\n' >"$root/etc/systemd/system.conf.d/lab.conf"
mkdir -p "$root/var/log/journal"
# The boot loader's part: the kernel and the initrd that Debian installed.
cp "$root"/boot/vmlinuz-* "$dir/vmlinuz"
cp "$root"/boot/initrd.img-* "$dir/initrd.img"

chroot "$root" sh -eu <<'EOF'
systemctl -q enable lab-net.service lab-exec.socket
systemctl -q mask getty.target systemd-update-utmp.service systemd-update-utmp-runlevel.service \
	apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer fstrim.timer e2scrub_all.timer systemd-tmpfiles-clean.timer \
	systemd-pstore.service e2scrub_reap.service networking.service
systemctl -q set-default multi-user.target
useradd --create-home --shell /bin/bash alice
EOF

used=$(du -sm "$root" | cut -f1)
mke2fs -q -F -t ext4 -d "$root" -m 0 -E nodiscard "$image" "$((used + 3072))M"
rm -r "$root"
