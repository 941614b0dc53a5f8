#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command where /lib/modules has one kernel, RELEASE, whose objects and source are in two folders. It has the running kernel's
# name, too: makefiles ask uname -r. It needs a mount namespace of its own.
set -e
release=$1 objects=$2 source=$3 scratch=$4 command=$5
modules=/lib/modules
if [ -d "$modules" ]; then
	mount -t tmpfs tmpfs "$modules"
else # as in a container
	mkdir -p "$scratch"
	mount -t tmpfs tmpfs "$scratch"
	mkdir "$scratch/upper" "$scratch/work"
	lib=$(readlink -f /lib)
	mount -t overlay overlay -o "lowerdir=$lib,upperdir=$scratch/upper,workdir=$scratch/work" "$lib"
fi
for name in "$release" "$(uname -r)"; do
	mkdir -p "$modules/$name"
	ln -sfn "$objects" "$modules/$name/build"
	ln -sfn "$source" "$modules/$name/source"
done
exec bash -c "$command"
