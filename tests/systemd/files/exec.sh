#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One command for root on this machine: a line with the token, one with the size
# of a shell script, the script. The answer is a line with the exit status and the
# sizes of stdout and stderr, then those.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin
export PATH
read -r token
read -r size
read -r mine </etc/lab-token
[ -n "$mine" ] && [ "$token" = "$mine" ] || exit 1
d=$(mktemp -d /run/exec.XXXXXX) || exit 1
head -c "$size" >"$d/script"
cd /root && sh "$d/script" </dev/null >"$d/out" 2>"$d/err"
echo "$? $(stat -c %s "$d/out") $(stat -c %s "$d/err")"
cat "$d/out" "$d/err"
rm -r "$d"
