# SPDX-License-Identifier: Apache-2.0
# What every machine has: the channel for commands, its name and addresses, and
# little that runs by itself. Read by the scripts that make a disk, which set
# $root, the machine's root, and $own, the test's files.
# shellcheck shell=sh disable=SC2154
install -m 0755 -t "$root/usr/local/libexec" -D "$own/exec.sh" "$own/net.sh"
install -m 0600 "$own/token" "$root/etc/lab-token"
install -m 0644 -t "$root/etc/systemd/system" "$own/lab-exec@.service" "$own/lab-exec.socket" "$own/lab-net.service"
install -m 0644 -t "$root/etc" "$own/fstab" "$own/hosts"
mkdir -p "$root/var/log/journal"
chroot "$root" sh -eu <<'EOF'
systemctl -q enable lab-net.service lab-exec.socket
systemctl -q mask getty.target systemd-update-utmp.service systemd-update-utmp-runlevel.service \
	apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer fstrim.timer e2scrub_all.timer systemd-tmpfiles-clean.timer \
	systemd-pstore.service e2scrub_reap.service
systemctl -q set-default multi-user.target
EOF
