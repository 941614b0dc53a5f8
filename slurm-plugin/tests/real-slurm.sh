#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later
# The plugin and job_submit.lua in a real Slurm: sbatch, salloc, srun, arrays,
# heterogeneous jobs and the gate, as an ordinary user. Prints TAP.
#
#	real-slurm.sh kernel_profile.so job_submit.lua [submit|gate]...
#
# It needs root, for namespaces in which all its daemons live and die.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
plugin=$(readlink -f "$1")
lua=$(readlink -f "$2")
shift 2
[ $# -gt 0 ] || set -- submit gate

if [ "${KP_INSIDE:-}" != 1 ]; then
	if [ "$(id -u)" != 0 ]; then
		echo "1..0 # SKIP needs root, to make namespaces"
		exit 0
	fi
	for program in slurmctld slurmd munged sbatch; do
		if ! command -v "$program" >/dev/null && [ ! -x "/usr/sbin/$program" ]; then
			echo "1..0 # SKIP needs $program"
			exit 0
		fi
	done
	dir=$(mktemp -d /tmp/kernel-profile.XXXXXX)
	trap 'rm -rf "$dir"' EXIT
	KP_INSIDE=1 KP_DIR=$dir PATH=$PATH:/usr/sbin:/sbin timeout 1800 unshare --net \
		--mount --pid --fork --mount-proc --kill-child "$0" "$plugin" "$lua" "$@"
	exit
fi

dir=$KP_DIR
chmod 755 "$dir"
# shellcheck source=cluster.sh
. "$here/cluster.sh"
cluster_write_conf "$dir" "$plugin" "$lua"
cluster_write_programs "$dir"
cat >"$dir/catalog.snapshot" <<-EOF
kernel-broker-snapshot 1
generated 2026-11-20T10:00:00Z
profile stock 1 1 available
profile mitgcm 3 1,2,3 available
profile quar 1 1 quarantined
end
EOF
mkdir "$dir/home"
chmod 777 "$dir/home"
cd "$dir/home"
cluster_start "$dir" || {
	tail -n 20 "$dir"/log/*.log >&2
	exit 1
}

# KP_KEEP=folder keeps the logs.
trap '[ -z "${KP_KEEP:-}" ] || cp -r "$dir" "$KP_KEEP"' EXIT

tests=0
failed=0
out=
rc=0

report() { # status text
	tests=$((tests + 1))
	if [ "$1" = 0 ]; then
		echo "ok $tests - $2"
	else
		echo "not ok $tests - $2"
		echo "# ${out//$'\n'/$'\n'# }"
		failed=$((failed + 1))
	fi
}

# Runs a command as an ordinary user; leaves out and rc.
as_user() {
	rc=0
	out=$(timeout 300 setpriv --reuid=65534 --regid=65534 --clear-groups \
		--inh-caps=-all "$@" 2>&1 </dev/null) || rc=$?
}

has() { # text description
	local s=0
	grep -qF -- "$1" <<<"$out" || s=1
	report $s "$2"
}

hasnt() { # text description
	local s=0
	grep -qF -- "$1" <<<"$out" && s=1
	report $s "$2"
}

is() { # got want description
	local s=0 out="got:  $1
want: $2"
	[ "$1" = "$2" ] || s=1
	report $s "$3"
}

refused() { # text description: the last command failed and said so
	local s=0
	{ [ "$rc" != 0 ] && grep -qF -- "$1" <<<"$out"; } || s=1
	report $s "$2"
}

node_is() { # node profile version jobs attested
	{
		echo format=1
		echo "boot_id=$(cat /proc/sys/kernel/random/boot_id)"
		echo "build_id=$(cluster_build_id)"
		echo "release=$(uname -r)"
		echo "profile=$2"
		echo "version=$3"
		echo "job=$4"
		echo "attested=$5"
		echo "later_key=ignored"
	} >"$dir/$1/node.state.new"
	mv "$dir/$1/node.state.new" "$dir/$1/node.state"
}

all_stock() {
	node_is n1 stock 1 "" 1
	node_is n2 stock 1 "" 1
}

job_state() { # job; of a heterogeneous job its first component
	scontrol -o show job "$1" 2>/dev/null |
		sed -n 's/.*JobState=\([A-Z_]*\).*/\1/p' | sed -n 1p
}

wait_job() { # job: until it has ended; prints how
	local state=
	for _ in $(seq 300); do
		state=$(job_state "$1")
		case $state in
		COMPLETED | FAILED | CANCELLED | NODE_FAIL | TIMEOUT | "") break ;;
		esac
		sleep 0.1
	done
	echo "$state"
}

reset_nodes() {
	local node
	scancel -u 65534 2>/dev/null || true
	sleep 0.3
	for node in n1 n2; do
		rm -f "$dir/$node/proc/cmdline.old"
		echo "root=/dev/vda quiet" >"$dir/$node/proc/cmdline"
		scontrol update nodename=$node state=resume 2>/dev/null || true
	done
	rm -f "$dir/lie"
	all_stock
	cluster_wait_idle 2 || true
}

prolog_env() { # job: the profile that PrologSlurmctld saw
	sed -n 's/^SPANK_KERNEL_PROFILE=//p' "$dir/prolog-env.$1"
}

other_spank() { # job: whatever else came through SPANK
	grep '^SPANK_' "$dir/prolog-env.$1" | grep -v '^SPANK_KERNEL_PROFILE=' || true
}

for part; do
	# shellcheck source=/dev/null
	. "$here/real-$part.sh"
done

echo "1..$tests"
[ "$failed" = 0 ] || echo "# $failed of $tests failed"
[ "$failed" = 0 ]
