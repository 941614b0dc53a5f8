#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later
# A real munged, slurmctld and two slurmds on loopback in namespaces of their
# own, for tests of the plugin. Sourced by real-slurm.sh; everything dies with
# the process namespace and the folder is removed by the caller.
#
# Kernels are not switched here: PrologSlurmctld stands in for the broker,
# writes the node.state that its agent would write and starts slurmd -b, which
# to Slurm looks like a boot.

cluster_write_conf() { # dir plugin lua
	local dir=$1 plugin=$2 lua=$3 node port=17001
	mkdir -p "$dir"/{ctld,bin,log,etc}
	cp "$lua" "$dir/etc/job_submit.lua"
	export PATH=$PATH:/usr/sbin:/sbin
	cat >"$dir/etc/slurm.conf" <<-EOF
	ClusterName=kp
	SlurmctldHost=$(hostname -s)(127.0.0.1)
	SlurmctldPort=16817
	AuthInfo=socket=$dir/munge.sock
	SlurmUser=root
	StateSaveLocation=$dir/ctld
	SlurmctldPidFile=$dir/ctld.pid
	SlurmctldLogFile=$dir/log/slurmctld.log
	SlurmdLogFile=$dir/log/slurmd-%n.log
	SlurmdPidFile=$dir/slurmd-%n.pid
	SlurmdSpoolDir=$dir/spool-%n
	SlurmctldDebug=debug
	SlurmdDebug=debug
	ProctrackType=proctrack/linuxproc
	TaskPlugin=task/none
	JobAcctGatherType=jobacct_gather/none
	SelectType=select/cons_tres
	SchedulerParameters=batch_sched_delay=0,sched_min_interval=1,bf_interval=1,nohold_on_prolog_fail
	PrologFlags=Alloc,DeferBatch
	SlurmctldParameters=reboot_from_controller
	RebootProgram=$dir/bin/reboot
	ResumeTimeout=60
	ReturnToService=0
	PrologSlurmctld=$dir/bin/prolog-slurmctld
	JobRequeue=1
	JobSubmitPlugins=lua
	MpiDefault=none
	DebugFlags=NO_CONF_HASH
	PlugStackConfig=$dir/etc/plugstack.conf
	EOF
	for node in n1 n2; do
		echo "NodeName=$node NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=$port CPUs=2"
		port=$((port + 1))
	done >>"$dir/etc/slurm.conf"
	cat >>"$dir/etc/slurm.conf" <<-EOF
	PartitionName=main Nodes=n1,n2 Default=YES MaxTime=10
	PartitionName=forced Nodes=n1,n2 OverSubscribe=FORCE:2 MaxTime=10
	EOF
	: >"$dir/etc/cgroup.conf"
	echo "required $plugin snapshot=$dir/catalog.snapshot kernelctl=$dir/bin/kernelctl" \
		>"$dir/etc/plugstack.conf"
	for node in n1 n2; do
		mkdir -p "$dir/$node/proc/sys/kernel/random" "$dir/spool-$node" "$dir/$node/etc"
		cp /proc/sys/kernel/random/boot_id "$dir/$node/proc/sys/kernel/random/"
		cp /proc/sys/kernel/osrelease "$dir/$node/proc/sys/kernel/"
		echo "root=/dev/vda quiet" >"$dir/$node/proc/cmdline"
		sed "s,^PlugStackConfig=.*,PlugStackConfig=$dir/$node/etc/plugstack.conf," \
			"$dir/etc/slurm.conf" >"$dir/$node/etc/slurm.conf"
		cp "$dir/etc/cgroup.conf" "$dir/$node/etc/"
		echo "required $plugin node_state=$dir/$node/node.state proc=$dir/$node/proc" \
			>"$dir/$node/etc/plugstack.conf"
	done
}

cluster_write_programs() { # dir
	local dir=$1
	printf '#!/bin/sh\nexit 0\n' >"$dir/bin/reboot"
	# The broker's answers: mitgcm is known, secret too but not here.
	cat >"$dir/bin/kernelctl" <<-'EOF'
	#!/bin/sh
	case $3 in
	secret | secret@*) exit 0 ;;
	far) echo "dial unix: connection refused" >&2; exit 1 ;;
	slow) exec sleep 60 ;;
	quar) echo "kernel profile \"quar\" is quarantined: it did not boot twice" >&2; exit 3 ;;
	*) echo "unknown kernel profile \"$3\"" >&2; exit 3 ;;
	esac
	EOF
	cat >"$dir/bin/boot-node" <<-EOF
	#!/bin/bash
	# boot-node NODE PROFILE VERSION JOB
	set -eu
	node=\$1
	old=\$(cat $dir/slurmd-\$node.pid 2>/dev/null || true)
	if [ -n "\$old" ]; then
		# What PrologSlurmctld has started ignores SIGTERM.
		kill -9 "\$old" 2>/dev/null || true
		while kill -0 "\$old" 2>/dev/null; do sleep 0.05; done
	fi
	{
		echo format=1
		echo boot_id=\$(cat /proc/sys/kernel/random/boot_id)
		echo build_id=$(cluster_build_id)
		echo release=$(uname -r)
		echo profile=\$2
		echo version=\$3
		echo job=\$4
		echo attested=1
	} >$dir/\$node/node.state.new
	mv $dir/\$node/node.state.new $dir/\$node/node.state
	SLURM_CONF=$dir/\$node/etc/slurm.conf setsid /usr/sbin/slurmd -b -N \$node </dev/null >>$dir/log/boot.log 2>&1
	EOF
	cat >"$dir/bin/prolog-slurmctld" <<-EOF
	#!/bin/bash
	export PATH=/usr/bin:/bin:/usr/sbin:/sbin
	env | sort >$dir/prolog-env.\$SLURM_JOB_ID
	want=\${SPANK_KERNEL_PROFILE:-}
	[ -n "\$want" ] || exit 0
	[ ! -e $dir/lie ] || want=\$(cat $dir/lie)
	sleep 2.2   # the registration must be younger than the request
	export SLURM_CONF=$dir/etc/slurm.conf
	version=3
	case \$want in *@*) version=\${want#*@} ;; esac
	for node in \$(scontrol show hostnames "\$SLURM_JOB_NODELIST"); do
		$dir/bin/boot-node \$node \${want%%@*} \$version \$SLURM_JOB_ID || exit 1
	done
	for i in \$(seq 100); do
		scontrol -o show node "\$SLURM_JOB_NODELIST" | grep -q POWERING_UP || exit 0
		sleep 0.1
	done
	exit 1
	EOF
	chmod 755 "$dir"/bin/*
}

cluster_build_id() {
	readelf -n /sys/kernel/notes 2>/dev/null | sed -n 's/.*Build ID: //p' | grep . ||
		od -An -v -tx1 -j16 -N20 /sys/kernel/notes | tr -d ' \n'
}

cluster_wait_idle() { # nodes
	for _ in $(seq 200); do
		[ "$(timeout 3 sinfo -h -N -p main -o %T | grep -cx idle)" = "$1" ] && return 0
		sleep 0.1
	done
	timeout 3 sinfo -N -l >&2
	return 1
}

cluster_start() { # dir
	local dir=$1 node
	ip link set lo up
	# getaddrinfo() finds no family at all where every address is 127.*.
	ip addr add 10.99.0.1/32 dev lo
	dd if=/dev/urandom of="$dir/munge.key" bs=128 count=1 status=none
	chmod 600 "$dir/munge.key"
	munged --force --key-file="$dir/munge.key" --socket="$dir/munge.sock" \
		--pid-file="$dir/munge.pid" --log-file="$dir/log/munge.log" \
		--seed-file="$dir/munge.seed" >>"$dir/log/boot.log" 2>&1
	export SLURM_CONF=$dir/etc/slurm.conf
	slurmctld >>"$dir/log/boot.log" 2>&1
	for node in n1 n2; do
		"$dir/bin/boot-node" "$node" stock 1 ""
	done
	cluster_wait_idle 2
}
