#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests of mitgcm-io, as TAP: test.sh PROGRAM [SANITIZED-PROGRAM]
#
# The calls are counted by strace, not by the program's own word. The figures
# are the paper's: 630 reads and 179,579 writes; 7 bin files with 648,000
# bytes; 508 meta files of 183 to 212 bytes, 102,940 bytes in 508 writes; 508
# data files, 32,356,800 bytes in 160,240 writes of 180 to 360 bytes.
#
# Functions are called through ok, which shellcheck does not see.
# shellcheck disable=SC2317
set -u

program=$(realpath "$1")
sanitized=${2:-$program}
sanitized=$(realpath "$sanitized")
for tool in strace jq; do
	if ! command -v "$tool" >/dev/null; then
		echo "1..0 # SKIP needs $tool, which make deps installs"
		exit 0
	fi
done
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

# same DESCRIPTION GOT WANT
same() {
	ok "$1" test "$2" = "$3"
	[ "$2" = "$3" ] || echo "# got $2, want $3"
}

# fails CODE WORDS COMMAND...: the exit code, and words on standard error.
fails() {
	wanted=$1
	words=$2
	shift 2
	"$@" >"$work/out" 2>"$work/err"
	code=$?
	if [ "$code" -ne "$wanted" ]; then
		echo "exit code $code, want $wanted"
		return 1
	fi
	grep -F -e "$words" "$work/err" && return 0
	cat "$work/err"
	return 1
}

field() {
	jq -r "$1" "$work/json"
}

# --- the whole run, counted from outside
strace -f -y -s 0 -e trace=read,write,lseek -o "$work/trace" \
	"$program" --dir "$work/full" --compute-scale 0 --keep --json \
	>"$work/json" 2>"$work/err"
same "the full run succeeds" "$?" 0

# calls CALL PATTERN: how many, and the sum of what they returned.
calls() {
	awk -v call="$1" -v pattern="$2" '
		index($0, call "(") && $0 ~ pattern {
			n++
			sum += $NF
		}
		END { print n + 0, sum + 0 }' "$work/trace"
}

# Standard output is a pipe or a file, outside of the folder.
same "strace: 630 reads in all" "$(calls read . | cut -d' ' -f1)" 630
same "strace: 179,579 writes below the folder" \
	"$(calls write "<$work/full/" | cut -d' ' -f1)" 179579
same "strace: bin files: 162 reads, 648,000 bytes" \
	"$(calls read '[.]bin>')" "162 648000"
same "strace: meta files: 508 writes, 102,940 bytes" \
	"$(calls write '[.]meta>')" "508 102940"
same "strace: data files: 160,240 writes, 32,356,800 bytes" \
	"$(calls write '[.]data>')" "160240 32356800"
same "strace: a seek before each of those" \
	"$(calls lseek '[.]data>' | cut -d' ' -f1)" 160240
same "strace: sizes of data writes" \
	"$(awk '/write\(.*[.]data>/ { print $NF }' "$work/trace" |
		sort -n | uniq -c | awk '{ printf "%s x %s;", $1, $2 }')" \
	"140720 x 180;19520 x 360;"
same "strace: bin files are read 4 KiB at a time at most" \
	"$(awk '/read\(.*[.]bin>/ { print $NF }' "$work/trace" |
		sort -n | tail -n 1)" 4096

same "508 data files" "$(find "$work/full" -name '*.data' | wc -l)" 508
same "508 meta files" "$(find "$work/full" -name '*.meta' | wc -l)" 508
same "7 bin files" "$(find "$work/full" -name '*.bin' | wc -l)" 7
same "meta files have 183 to 212 bytes" \
	"$(find "$work/full" -name '*.meta' -printf '%s\n' | sort -n |
		uniq | tr '\n' ' ')" "183 212 "
ok "a data file is larger than 1 MB" \
	test -n "$(find "$work/full" -name '*.data' -size +1000000c)"
same "the program counts the same reads" "$(field .total.reads)" 630
same "the program counts the same writes" "$(field .total.writes)" 179579
same "and says that all is well" "$(field .ok)" true

# --- the computation
run() {
	"$program" --dir "$work/run" --io-scale 20 --json "$@" >"$work/json" \
		2>"$work/err"
}
ok "a computation is correct" run --compute-scale 2
same "365 days of two steps" "$(field .compute.steps)" 730
first=$(field .compute.digest)
ok "the folder is gone after the run" test ! -e "$work/run"
ok "the same again" run --compute-scale 2
same "gives the same digest" "$(field .compute.digest)" "$first"
ok "with another seed" run --compute-scale 2 --seed 2
ok "the digest is another" test "$(field .compute.digest)" != "$first"
ok "without a computation" run --compute-scale 0
same "there are no steps" "$(field .compute.steps)" 0

# --- scales: every pattern gets smaller, and the check still holds
for scale in 1 2 3 7 100 1000000; do
	ok "scale $scale is consistent" "$program" --dir "$work/scaled" \
		--compute-scale 0 --io-scale "$scale"
done
run --compute-scale 0
ok "scale 20 writes about a twentieth" test "$(field .total.writes)" \
	-gt 8000 -a "$(field .total.writes)" -lt 10000

# --- faults: none may pass unseen
fault() {
	rm -rf "$work/fault"
	strace -f -o /dev/null -e trace="${1%%:*}" -e inject="$1" \
		"$program" --dir "$work/fault" --io-scale 50 --compute-scale 0
}
ok "a full disk" fails 1 "No space left on device" \
	fault write:error=ENOSPC:when=300
ok "a short write" fails 1 "179 of 180 bytes went out" \
	fault write:retval=179:when=400
ok "a write that never reached the file" fails 1 \
	"the content is not what was written" fault write:retval=180:when=400
ok "a failing read" fails 1 "Input/output error" fault read:error=EIO:when=12
ok "a failing close" fails 1 "close" fault close:error=EIO:when=40
ok "a failing seek" fails 1 "seek" fault lseek:error=EINVAL:when=30
ok "the files stay after a failure" test -e "$work/fault/results.log"
ok "an old run is in the way" fails 1 "File exists" \
	"$program" --dir "$work/fault"
ok "a folder that cannot be" fails 1 "/dev/null/x: Not a directory" \
	"$program" --dir /dev/null/x
# shellcheck disable=SC2016 # the inner shell expands them
ok "standard output is full" fails 1 "No space left on device" \
	sh -c '"$1" --dir "$2" --io-scale 50 --json >/dev/full' - \
	"$program" "$work/stdout"

# --- usage
ok "help" "$program" --help
ok "no folder" fails 2 "--dir FOLDER is missing" "$program"
ok "unknown option" fails 2 "unrecognized option" "$program" --nothing
ok "a word too many" fails 2 "unexpected argument x" \
	"$program" --dir "$work/x" x
for wrong in "" x -1 0 1x 99999999999999999999; do
	ok "io scale '$wrong'" fails 2 "--io-scale" \
		"$program" --dir "$work/x" --io-scale "$wrong"
done
ok "none of those made a folder" test ! -e "$work/x"

# --- the same under the sanitizers
ok "sanitizers find nothing" "$sanitized" --dir "$work/sane" --io-scale 3

echo "1..$number"
exit "$failed"
