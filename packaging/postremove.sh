#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# After a removal. A purge takes what can be fetched again; it leaves
# /var/lib/kernel-broker, which has a site's catalog, audit log and keys of its
# authority, or a node's key, and the user who owns it.
set -e

unit=@UNIT@
if [ "${1:-}" = purge ] && [ "$unit" = kernel-broker-agent ]; then
	rm -rf /var/cache/kernel-broker
fi
[ ! -d /run/systemd/system ] || systemctl daemon-reload
