#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests of the small workloads, as TAP: test.sh FOLDER SANITIZED-FOLDER
#
# Functions are called through ok, which shellcheck does not see.
# shellcheck disable=SC2317
set -u

programs=$(realpath "$1")
sanitized=$(realpath "$2")
for tool in strace objdump; do
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

# fails CODE WORDS COMMAND...: the exit code, and words on standard error.
fails() {
	wanted=$1
	words=$2
	shift 2
	"$@" >"$work/out" 2>"$work/err"
	code=$?
	if [ "$code" -ne "$wanted" ]; then
		echo "exit code $code, want $wanted"
		cat "$work/err"
		return 1
	fi
	grep -F -e "$words" "$work/err"
}

# clean: nothing is left in the folder that the workloads write to.
clean() {
	[ -z "$(ls -A "$work/dir")" ] || { ls -A "$work/dir"; return 1; }
}

# regions WORDS: what the last run said of its regions.
regions() {
	cat "$work/regions"
	[ "$(cat "$work/regions")" = "$1" ]
}

run() {
	rm -f "$work/regions"
	"$@" --dir "$work/dir" --regions "$work/regions"
}

mkdir "$work/dir"
for folder in "$programs" "$sanitized"; do
	for program in io-write8 syscall-mix ipc-mix tcp-roundtrip postmark; do
		ok "$program works in ${folder##*/}" run "$folder/$program" --size 300 --seed 5
		ok "$program leaves nothing behind" clean
	done
done

ok "io-write8 does what it says" run "$programs/io-write8" --size 77 --prefix tmpfs- --first 9
ok "and says it" regions "9 tmpfs-write8 77"
count_writes() {
	strace -f -o "$work/trace" -e trace=write "$programs/io-write8" --size 500 --dir "$work/dir"
	[ "$(grep -c ', 8) *= 8$' "$work/trace")" -eq 500 ]
}
ok "each write is a system call of 8 bytes" count_writes
ok "a write that fails is no success" fails 1 "write: No space left" \
	strace -f -o "$work/trace" -e trace=write -e inject=write:error=ENOSPC:when=50 \
	"$programs/io-write8" --size 100 --dir "$work/dir"
ok "a write that says it worked and did not is found" fails 1 "the file has 792 bytes" \
	strace -f -o "$work/trace" -e trace=write -e inject=write:retval=8:when=50 \
	"$programs/io-write8" --size 100 --dir "$work/dir"
rm -f "$work/dir/io-write8"
ok "postmark finds a write that was lost" fails 1 "has not 100 bytes" \
	strace -f -o "$work/trace" -e trace=write -e inject=write:retval=100:when=20 \
	"$programs/postmark" --processes 1 --size 4000 --dir "$work/dir"
rm -rf "$work/dir"/postmark-*
ok "syscall-mix finds a call that lies" fails 1 "getppid: another parent" \
	strace -f -o "$work/trace" -e trace=getppid -e inject=getppid:retval=99999:when=5 \
	"$programs/syscall-mix" --size 20 --dir "$work/dir"
ok "ipc-mix finds a block that changed on its way" fails 1 "file: not what was written" \
	strace -f -o "$work/trace" -e trace=pread64 -e inject=pread64:retval=65536 \
	"$programs/ipc-mix" --size 20 --dir "$work/dir"
ok "a folder that is not there is named" fails 1 "/nowhere/io-write8: No such file" \
	"$programs/io-write8" --dir /nowhere
ok "an unknown option is refused" fails 2 "usage: " "$programs/postmark" --bogus
ok "a size that is none is refused" fails 2 "\"-1\" is not a number" "$programs/postmark" --size -1

# What the program does is chosen by the seed alone.
same_calls() {
	for i in 1 2 3; do
		seed=3
		[ "$i" -lt 3 ] || seed=4
		strace -f -o "$work/raw" -e trace=openat,unlink "$programs/postmark" \
			--processes 1 --size 200 --seed "$seed" --dir "$work/dir" || return 1
		# Process ids and ends come as they like.
		sed -n 's/^[0-9]* *\(openat\|unlink\)/\1/p' "$work/raw" >"$work/calls.$i"
	done
	cmp "$work/calls.1" "$work/calls.2" && ! cmp "$work/calls.1" "$work/calls.3"
}
ok "postmark repeats with the same seed, and only with that" same_calls

markers() {
	objdump -d "$programs/$1" >"$work/code"
	[ "$(grep -c "nopl *0x7ab000[0-9a-f]*(%rax)" "$work/code")" -ge "$2" ]
}
ok "kbmark has all 64 markers" markers kbmark 64
ok "kbmark meets one" "$programs/kbmark" 63
ok "kbmark refuses a number above" fails 2 "usage: kbmark" "$programs/kbmark" 64
ok "kbmark refuses what is none" fails 2 "usage: kbmark" "$programs/kbmark" 1x

echo "1..$number"
exit "$failed"
