#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Writes names.txt from the system's own list of x86-64 system calls.
set -eu
header=${1:-/usr/include/x86_64-linux-gnu/asm/unistd_64.h}
{
	echo '# SPDX-License-Identifier: Apache-2.0'
	sed -n 's/^#define __NR_\([a-z0-9_]*\) \([0-9]*\)$/\2 \1/p' "$header"
} >names.txt
