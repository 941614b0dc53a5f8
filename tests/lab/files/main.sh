#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The node's one service: the agent, which starts slurmd when it may; on a lab
# without the product, slurmd itself. init starts this again when it ends.
PATH=/usr/sbin:/usr/bin
export PATH
config=/etc/kernel-broker/agent.yaml
if [ -e "$config" ]; then
	mkdir -p /var/log/kernel-broker
	exec kernel-broker-agent --config "$config" \
		>>/var/log/kernel-broker/agent.log 2>&1
fi
mkdir -p /var/log/slurm
exec slurmd -b -D >>/var/log/slurm/slurmd.out 2>&1
