#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs, upgrades, removes and purges the packages in a Debian root.
#   packages.sh DEBIAN OLD NEW FOLDER
set -eu
debian=$1 old=$2 new=$3 root=$4/debian
mkdir "$root"
# Devices are this machine's: a user's namespace can make none.
tar -C "$root" --numeric-owner --exclude=./dev/* -xpf "$debian"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
trap 'umount -l "$root/dev" "$root/proc"; rm -rf "$root"' EXIT
cp -r "$old" "$root/old"
cp -r "$new" "$root/new"

cat >"$root/steps" <<'EOF'
set -eu
export DEBIAN_FRONTEND=noninteractive
say() { echo "packages: $*"; }
fail() { say "$*"; exit 1; }
# The root has no compiler, which only the factory needs.
install_all() { dpkg --force-confold --ignore-depends=make,gcc -i "$@" >/tmp/dpkg.log 2>&1 || { cat /tmp/dpkg.log; fail "dpkg -i $* fails"; }; }
is() { [ "$1" = "$2" ] || fail "$3: $1, want $2"; }
config=/etc/kernel-broker
systemctl list-unit-files --no-legend 'slurm*' munge.service >/tmp/others
find / -xdev -path /proc -prune -o -path /dev -prune -o -path /tmp -prune -o -path /var/log -prune -o -path /var/lib/dpkg -prune -o -path /var/cache -prune -o -print | sort >/tmp/before

say "install the broker's host"
install_all /old/kernel-broker_*.deb /old/kernel-broker-client_*.deb /old/kernel-broker-slurm-plugin-*.deb /old/kernel-factory_*.deb
is "$(getent passwd kernel-broker | cut -d: -f6,7)" /var/lib/kernel-broker:/usr/sbin/nologin "the broker's user"
is "$(stat -c '%U:%G %a' /var/lib/kernel-broker)" "kernel-broker:kernel-broker 755" "the broker's folder"
is "$(stat -c '%U:%G %a' /var/lib/kernel-broker/hook)" "slurm:slurm 750" "the hooks' folder"
is "$(systemctl is-enabled kernel-broker || true)" disabled "the unit after the installation"
kernel-broker --check
kernelctl --help >/dev/null
! dpkg -i /old/kernel-broker-agent_*.deb >/tmp/dpkg.log 2>&1 || fail "a broker's host takes an agent"
dpkg --purge kernel-broker-agent >/dev/null 2>&1 || true
is "$(dpkg-query -W -f '${db:Status-Abbrev}' kernel-broker)" "ii " "the broker after a refused agent"
sed -i 's/^cluster:.*/cluster: changed/; $a# a note of the site' $config/broker.yaml
systemctl enable kernel-broker 2>/dev/null
cp $config/broker.yaml /tmp/broker.yaml
echo kept >/var/lib/kernel-broker/data

say "upgrade"
install_all /new/kernel-broker_*.deb /new/kernel-broker-client_*.deb /new/kernel-broker-slurm-plugin-*.deb /new/kernel-factory_*.deb
is "$(dpkg-query -W -f '${Version}' kernel-broker)" 0.2.0-1 "the version"
cmp /tmp/broker.yaml $config/broker.yaml || fail "the upgrade changed broker.yaml"
grep -q 'of the new version' $config/broker.yaml.sample || fail "no new sample beside broker.yaml"
grep -q 'of the new version' $config/client.yaml || fail "client.yaml, which nobody changed, stays old"
is "$(systemctl is-enabled kernel-broker)" enabled "the unit after the upgrade"
is "$(cat /var/lib/kernel-broker/data)" kept "the data after the upgrade"
kernel-broker --check

say "remove"
dpkg --remove kernel-broker kernel-broker-slurm-plugin-22.05 kernel-factory kernel-broker-client >/tmp/dpkg.log 2>&1 || { cat /tmp/dpkg.log; fail "dpkg --remove"; }
cmp /tmp/broker.yaml $config/broker.yaml || fail "the removal took broker.yaml"
[ ! -e /usr/sbin/kernel-broker ] || fail "the program stays"
[ ! -L /etc/systemd/system/multi-user.target.wants/kernel-broker.service ] || fail "the unit stays enabled"
is "$(cat /var/lib/kernel-broker/data)" kept "the data after the removal"

say "purge"
dpkg --purge kernel-broker kernel-broker-slurm-plugin-22.05 kernel-factory kernel-broker-client >/tmp/dpkg.log 2>&1 || { cat /tmp/dpkg.log; fail "dpkg --purge"; }
is "$(cat /var/lib/kernel-broker/data)" kept "the data after the purge"

say "the agent on a node"
rm -r /var/lib/kernel-broker
install_all /old/kernel-broker-agent_*.deb /old/kernel-broker-slurm-plugin-*.deb
sed -i 's/^broker:.*/broker: ctl1:7440/' $config/agent.yaml
cp $config/agent.yaml /tmp/agent.yaml
kernel-broker-agent --check
[ -e /usr/include/kernel-broker/live.h ] || fail "no header for applications"
mkdir -p /var/lib/kernel-broker/tls /var/cache/kernel-broker
echo key >/var/lib/kernel-broker/tls/node.key
install_all /new/kernel-broker-agent_*.deb /new/kernel-broker-slurm-plugin-*.deb
cmp /tmp/agent.yaml $config/agent.yaml || fail "the upgrade changed agent.yaml"
grep -q 'of the new version' $config/agent.yaml.sample || fail "no new sample beside agent.yaml"
dpkg --remove kernel-broker-agent kernel-broker-slurm-plugin-22.05 >/dev/null
cmp /tmp/agent.yaml $config/agent.yaml || fail "the removal took agent.yaml"
dpkg --purge kernel-broker-agent kernel-broker-slurm-plugin-22.05 >/dev/null
[ ! -e /var/cache/kernel-broker ] || fail "the cache of kernels stays"
[ -e /var/lib/kernel-broker/tls/node.key ] || fail "the purge took the node's key"
rm -r /var/lib/kernel-broker

say "what is left"
systemctl list-unit-files --no-legend 'slurm*' munge.service | cmp - /tmp/others || fail "other units changed"
find / -xdev -path /proc -prune -o -path /dev -prune -o -path /tmp -prune -o -path /var/log -prune -o -path /var/lib/dpkg -prune -o -path /var/cache -prune -o -print | sort >/tmp/after
left=$(comm -13 /tmp/before /tmp/after | grep -vE '^/etc/(passwd|group|shadow|gshadow)-$|^/etc/\.pwd\.lock$' || true)
is "$left" "" "files that are left"
EOF
chroot "$root" sh /steps
