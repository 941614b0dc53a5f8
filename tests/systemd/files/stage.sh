#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the machines' disk: Debian's root, what make install puts there, and the
# test's own files.
#   stage.sh DEBIAN FOLDER REPOSITORY IMAGE INITRD PROBE
set -eu
debian=$1 dir=$2 repo=$3 image=$4 initrd=$5 probe=$6
root=$dir/root own=$dir/files
mkdir "$root"
tar -C "$root" --numeric-owner -xpf "$debian"

# -o: what was built is installed, nothing is built meanwhile.
make -s -C "$repo" -o build install DESTDIR="$(realpath "$root")"

# shellcheck source=machine.sh
. "$own/machine.sh"
install -m 0644 -t "$root/etc/slurm" "$own/slurm.conf"
install -m 0600 -t "$root/etc/slurm" "$own/slurmdbd.conf"
echo CgroupPlugin=cgroup/v2 >"$root/etc/slurm/cgroup.conf"
echo "required /usr/lib/kernel-broker/kernel_profile.so" >"$root/etc/slurm/plugstack.conf"
mkdir -p "$root/srv/kernels"
for kernel in stock mitgcm; do
	install -D -m 0644 -t "$root/srv/kernels/$kernel" "$repo/build/kernels/$kernel/bzImage" "$repo/build/kernels/$kernel/kernel.json"
done
release=$(basename "$repo"/build/kernels/stock/modules/lib/modules/*)
install -D -m 0644 "$repo/build/kernels/stock/bzImage" "$root/boot/vmlinuz-$release"
install -D -m 0644 "$initrd" "$root/boot/initrd.img-$release"
# A module that is not in use: to try whether it can be loaded.
find "$repo/build/kernels/stock/modules" -name overlay.ko -exec install -m 0644 -t "$root/srv" {} +
install -m 0755 "$probe" "$root/usr/local/libexec/probe"

chroot "$root" sh -eu <<'EOF'
chown slurm:slurm /etc/slurm/slurmdbd.conf
# What runs is what the test starts.
systemctl -q disable slurmctld slurmd slurmdbd mariadb
for user in alice; do useradd --create-home --shell /bin/bash "$user"; done
EOF

# Room for the store and the artifacts, and so much that the audit log, which
# warns early, is well with it.
used=$(du -sm "$root" | cut -f1)
mke2fs -q -F -t ext4 -d "$root" -m 0 -E nodiscard "$image" "$((used + 2048))M"
rm -r "$root"
