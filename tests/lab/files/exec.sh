#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One command for root on this node, from the lab's exec channel: the token's
# line, then a shell script up to the end of input. The answer is a line with
# the exit status and the sizes of stdout and stderr, then those.
PATH=/usr/local/bin:/usr/sbin:/usr/bin
export PATH
read -r token
read -r mine </run/kblab.token
[ -n "$mine" ] && [ "$token" = "$mine" ] || exit 1
d=$(mktemp -d /run/exec.XXXXXX) || exit 1
cat >"$d/script"
sh "$d/script" </dev/null >"$d/out" 2>"$d/err"
code=$?
echo "$code $(stat -c %s "$d/out") $(stat -c %s "$d/err")"
cat "$d/out" "$d/err"
rm -r "$d"
