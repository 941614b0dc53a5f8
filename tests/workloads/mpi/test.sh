#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests of the program on one host, as TAP: test.sh MPIEXEC PROGRAM SANITIZED
set -u
mpiexec=$1
program=$2
sanitized=$3
# MPI and its transports keep memory until the end, and follow mmap by hooks of
# their own, as the sanitizer does.
export ASAN_OPTIONS=detect_leaks=0 UCX_MEM_EVENTS=no
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0
failed=0

# ok DESCRIPTION COMMAND...: passes when the command does.
ok() {
	number=$((number + 1))
	description=$1
	shift
	if "$@" >"$work/said" 2>&1; then
		echo "ok $number - $description"
	else
		echo "not ok $number - $description"
		sed 's/^/# /' "$work/said"
		failed=1
	fi
}

# measures FILTER PROGRAM: what two ranks print is JSON of which the filter is true.
# shellcheck disable=SC2317
measures() {
	"$mpiexec" -n 2 "$2" --samples 5 --messages 16 >"$work/out.json" || return 1
	cat "$work/out.json"
	jq -e "$1" "$work/out.json"
}

# refuses CODE WORDS RANKS COMMAND...: ends with the code, and says the words.
# shellcheck disable=SC2317
refuses() {
	code=$1 words=$2 ranks=$3
	shift 3
	"$mpiexec" -n "$ranks" "$@" >"$work/out" 2>&1
	got=$?
	cat "$work/out"
	[ "$got" -eq "$code" ] && grep -qF -e "$words" "$work/out"
}

rows='(.latency_seconds | map(.bytes)) == [0, 1, 2, 4, 8, 16, 32, 64]
	and (.bandwidth_bytes_per_second | map(.bytes)) == [64, 250, 500, 1000, 2000, 4000, 8000, 16000]'
order='[.latency_seconds[], .bandwidth_bytes_per_second[]]
	| all(0 < .min and .min <= .q1 and .q1 <= .median and .median <= .q3 and .q3 <= .max)'
ok "all sizes" measures "$rows" "$program"
ok "the same under the sanitizers" measures "$rows" "$sanitized"
ok "medians lie between their quartiles" measures "$order" "$program"
ok "nodes and library are named" measures ".nodes == [\"$(hostname)\", \"$(hostname)\"] and .samples == 5 and (.library | test(\"MPI\"))" "$program"
ok "a changed byte is found" refuses 1 "byte 1 of a message of 2 bytes is wrong" 2 "$program" --wrong latency
ok "an old message is found" refuses 1 "byte 0 of a message of 2 bytes is wrong" 2 "$program" --wrong number
ok "a changed byte of a stream is found" refuses 1 "byte 63 of a message of 64 bytes is wrong" 2 "$program" --wrong bandwidth
ok "one rank is refused" refuses 2 "1 ranks and not 2" 1 "$program"
ok "half a window is refused" refuses 2 "usage" 2 "$program" --messages 17
ok "no number is refused" refuses 2 "usage" 2 "$program" --samples 0
echo "1..$number"
exit "$failed"
