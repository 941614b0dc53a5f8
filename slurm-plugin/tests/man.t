#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later
# man.t folder: the manual page is clean, and tells of what there is.
set -u
dir=$1
page=$dir/kernel_profile.8
failed=0
n=0

check() { # result text
	n=$((n + 1))
	[ "$1" = 0 ] || { failed=1; printf 'not '; }
	echo "ok $n - $2"
}

if command -v groff >/dev/null; then
	words=$(groff -man -ww -Tutf8 -rLL=78n "$page" 2>&1 >/dev/null || true)
	[ -z "$words" ] || echo "# $words"
	[ -z "$words" ]; check $? "groff has nothing to say"
fi
if command -v mandoc >/dev/null; then
	words=$(mandoc -T lint -W warning "$page" 2>&1 || true)
	[ -z "$words" ] || echo "# $words"
	[ -z "$words" ]; check $? "mandoc has nothing to say"
fi
text=$(sed 's/[\\]//g' "$page")
for word in $(sed -n 's/^	\.\([a-z_]*\) = "\(.*\)",$/\1= \2/p' "$dir/src/common/settings.c") \
	$(sed -n 's/^#define [A-Z_]*ENV "\([A-Z_]*\)"$/\1/p' "$dir/src/common/names.h") \
	--kernel-profile SPANK_KERNEL_PROFILE; do
	printf '%s\n' "$text" | grep -qF -e "$word"
	check $? "$word is described"
done
echo "1..$n"
[ "$n" -gt 5 ] && [ "$failed" = 0 ]
