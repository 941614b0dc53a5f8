#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later
# symbols.t kernel_profile.so: what the plugin shows and what it needs.
set -eu
plugin=$1

shown=$(nm -D --defined-only "$plugin" | awk '{ print $3 }' | sort)
extra=$(printf '%s\n' "$shown" | grep -v '^slurm_spank_' |
	grep -vx -e plugin_name -e plugin_type -e plugin_version \
		-e spank_plugin_version || true)
missing=
for name in plugin_name plugin_type plugin_version spank_plugin_version \
	slurm_spank_init slurm_spank_init_post_opt slurm_spank_job_prolog \
	slurm_spank_user_init slurm_spank_task_init; do
	printf '%s\n' "$shown" | grep -qx "$name" || missing="$missing $name"
done
# Slurm's functions come from the program that loads the plugin.
alien=$(nm -D --undefined-only "$plugin" |
	awk '$1 == "U" { print $2 }' | grep -v '@' |
	grep -v -e '^spank_' -e '^slurm_' || true)

echo 1..3
test -z "$extra" || { echo "# shown: $extra"; printf 'not '; }
echo "ok 1 - nothing else is shown"
test -z "$missing" || { echo "# missing:$missing"; printf 'not '; }
echo "ok 2 - all that Slurm looks for is there"
test -z "$alien" || { echo "# needs: $alien"; printf 'not '; }
echo "ok 3 - nothing is needed but Slurm and the C library"
test -z "$extra$missing$alien"
