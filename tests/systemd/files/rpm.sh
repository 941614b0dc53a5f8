#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs, upgrades and removes the rpm packages in a Debian root, whose own
# packages rpm does not know: DISTRIBUTION has packages that stand for them.
#   rpm.sh DEBIAN OLD NEW FOLDER DISTRIBUTION
set -eu
debian=$1 old=$2 new=$3 root=$4/rpm distribution=$5
mkdir "$root"
tar -C "$root" --numeric-owner --exclude=./dev/* -xpf "$debian"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
trap 'umount -l "$root/dev" "$root/proc"; rm -rf "$root"' EXIT
say() { echo "rpm: $*"; }
fail() { say "$*"; exit 1; }
is() { [ "$1" = "$2" ] || fail "$3: $1, want $2"; }
manage() { rpm --force-debian --root "$root" --dbpath /var/lib/rpm "$@" >"$root/tmp/rpm.log" 2>&1; }
must() { manage "$@" || { cat "$root/tmp/rpm.log"; fail "rpm $* fails"; }; }
# It has to fail, and to name what.
refused() { what=$1; shift; ! manage "$@" || fail "rpm $* is not refused"; grep -q -- "$what" "$root/tmp/rpm.log" || { cat "$root/tmp/rpm.log"; fail "rpm $*: no word of $what"; }; }
files() { find "$root" -xdev -path "$root/tmp" -prune -o -path "$root/var/log" -prune -o -path "$root/var/lib/rpm" -prune -o -print | sort; }
in_root() { chroot "$root" "$@"; }
config=$root/etc/kernel-broker state=$root/var/lib/kernel-broker
broker="kernel-broker-[0-9]*.rpm kernel-broker-client-*.rpm kernel-broker-slurm-plugin-*.rpm kernel-factory-*.rpm"
agent="kernel-broker-agent-*.rpm kernel-broker-slurm-plugin-*.rpm"
packages() { (cd "$1" && shift && for pattern in "$@"; do for file in $pattern; do echo "$PWD/$file"; done; done); }

files >"$root/tmp/before"
# shellcheck disable=SC2086,SC2046 # lists of patterns and of packages
{
	say "without what they need"
	refused 'systemd is needed' --install $(packages "$old" $broker)
	must --install "$distribution"/slurm-new-*.rpm
	refused 'conflicts with' --install $(packages "$old" $broker)
	must --erase slurm-new

	say "install the broker's host"
	must --install "$distribution"/distribution-*.rpm
	must --install $(packages "$old" $broker)
	is "$(in_root getent passwd kernel-broker | cut -d: -f6)" /var/lib/kernel-broker "the broker's user"
	is "$(in_root stat -c '%U:%G %a' /var/lib/kernel-broker)" "kernel-broker:kernel-broker 755" "the broker's folder"
	is "$(in_root stat -c '%U:%G %a' /var/lib/kernel-broker/hook)" "slurm:slurm 750" "the hooks' folder"
	is "$(in_root systemctl is-enabled kernel-broker || true)" disabled "the unit after the installation"
	in_root kernel-broker --check
	in_root kernelctl --help >/dev/null
	must --verify kernel-broker kernel-broker-client kernel-factory
	refused 'conflicts with' --install $(packages "$old" $agent)
	sed -i 's/^cluster:.*/cluster: changed/; $a# a note of the site' "$config/broker.yaml"
	in_root systemctl enable kernel-broker 2>/dev/null
	cp "$config/broker.yaml" "$root/tmp/broker.yaml"
	echo kept >"$state/data"

	say "upgrade"
	must --upgrade $(packages "$new" $broker)
	is "$(rpm --root "$root" --dbpath /var/lib/rpm -q --qf '%{VERSION}-%{RELEASE}' kernel-broker)" 0.2.0-1 "the version"
	cmp "$root/tmp/broker.yaml" "$config/broker.yaml" || fail "the upgrade changed broker.yaml"
	grep -q 'of the new version' "$config/broker.yaml.rpmnew" || fail "no new configuration beside broker.yaml"
	grep -q 'of the new version' "$config/client.yaml" || fail "client.yaml, which nobody changed, stays old"
	is "$(in_root systemctl is-enabled kernel-broker)" enabled "the unit after the upgrade"
	is "$(cat "$state/data")" kept "the data after the upgrade"
	in_root kernel-broker --check

	say "remove"
	must --erase kernel-broker kernel-broker-slurm-plugin-22.05 kernel-factory kernel-broker-client
	cmp "$root/tmp/broker.yaml" "$config/broker.yaml.rpmsave" || fail "the removal took broker.yaml"
	[ ! -e "$root/usr/sbin/kernel-broker" ] || fail "the program stays"
	[ ! -L "$root/etc/systemd/system/multi-user.target.wants/kernel-broker.service" ] || fail "the unit stays enabled"
	is "$(cat "$state/data")" kept "the data after the removal"
	rm -r "$state" "$config"

	say "the agent on a node"
	must --install $(packages "$old" $agent)
	sed -i 's/^broker:.*/broker: ctl1:7440/' "$config/agent.yaml"
	cp "$config/agent.yaml" "$root/tmp/agent.yaml"
	in_root kernel-broker-agent --check
	[ -e "$root/usr/include/kernel-broker/live.h" ] || fail "no header for applications"
	must --upgrade $(packages "$new" $agent)
	cmp "$root/tmp/agent.yaml" "$config/agent.yaml" || fail "the upgrade changed agent.yaml"
	must --erase kernel-broker-agent kernel-broker-slurm-plugin-22.05
	cmp "$root/tmp/agent.yaml" "$config/agent.yaml.rpmsave" || fail "the removal took agent.yaml"
	rm -r "$config"
	must --erase distribution
}

say "what is left"
files >"$root/tmp/after"
left=$(comm -13 "$root/tmp/before" "$root/tmp/after" | grep -vE '/etc/((passwd|group|shadow|gshadow)-|\.pwd\.lock)$' || true)
is "$left" "" "files that are left"
