#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests of the check itself, as TAP: test.sh PROGRAM SANITIZED
set -u
# Contents stay, since open files outlive their names.
export ASAN_OPTIONS=detect_leaks=0
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

# finds WORDS COMMAND...: fails, and says so with the words.
# shellcheck disable=SC2317
finds() {
	words=$1
	shift
	if "$@" >"$work/out" 2>&1; then
		echo "found nothing"
		return 1
	fi
	cat "$work/out"
	grep -qF -e "$words" "$work/out"
}

mkdir "$work/dir"
for seed in 1 2 3; do
	ok "random operations, seed $seed" "$2" random --dir "$work/dir" --seed "$seed" --steps 3000
done
ok "writers side by side" "$1" writers --dir "$work/dir"
ok "a process that is killed" "$1" killed --dir "$work/dir"
ok "a limit of the file's size" "$1" limit --dir "$work/dir"
ok "records that were not cut" "$1" records --dir "$work/dir"
ok "they are verified" "$1" verify --dir "$work/dir"
printf x | dd of="$work/dir/records" bs=1 seek=100 conv=notrunc status=none
ok "a changed byte is found" finds "byte 100" "$1" verify --dir "$work/dir"
: >"$work/dir/records"
ok "lost records are found" finds "lost" "$1" verify --dir "$work/dir"
ok "a wrong model is found" finds "byte " "$1" random --dir "$work/dir" --seed 1 --steps 3000 --wrong
echo "1..$number"
exit "$failed"
