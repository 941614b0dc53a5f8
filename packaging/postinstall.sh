#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# After an installation or an upgrade, of deb (configure) and rpm (a number).
# Nothing is enabled or started: an administrator does that who has configured it.
set -e

unit=@UNIT@
case ${1:-} in configure | [0-9]*) ;; *) exit 0 ;; esac

if [ "$unit" = kernel-broker ]; then
	state=/var/lib/kernel-broker
	# The folder of the hooks is SlurmUser's, and is made while root has the folder
	# that it is in: later the broker's user could put a link there.
	systemd-sysusers kernel-broker.conf
	if [ ! -e "$state" ]; then
		install -d -m 0755 "$state"
		! getent passwd slurm >/dev/null || install -d -m 0750 -o slurm -g slurm "$state/hook"
		chown kernel-broker:kernel-broker "$state"
	fi
fi
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
# One that runs goes on with the new program; a switch that is under way survives that.
# One that does not come up again leaves a package that is installed: dpkg and rpm
# would not go on with others.
systemctl try-restart "$unit.service" || echo "$unit: systemctl status $unit says why it does not run" >&2
