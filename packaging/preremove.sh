#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Before a removal, of deb (remove) and rpm (0); not before an upgrade.
set -e

unit=@UNIT@
case ${1:-} in remove | 0) ;; *) exit 0 ;; esac

if [ -d /run/systemd/system ]; then
	systemctl disable --now "$unit.service"
else
	systemctl disable "$unit.service"
fi
