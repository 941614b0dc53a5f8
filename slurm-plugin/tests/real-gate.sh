# SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later
# shellcheck shell=bash
# Sourced by real-slurm.sh: the gate on the nodes, and the backstop.
# shellcheck disable=SC2154  # out, rc and dir are real-slurm.sh's

gate_log() { # node job: the gate's refusal in slurmd's log
	grep -F "gate: job $2 refused" "$dir/log/slurmd-$1.log" | head -n 1 |
		sed 's/.*gate: //' || true
}

# The job must be turned away on n1, wait in the queue, and have run nothing.
turned_away() { # description expected-log
	local line=
	for _ in $(seq 150); do
		line=$(gate_log n1 "$job")
		[ -z "$line" ] || break
		sleep 0.1
	done
	is "$line" "job $job refused: $2" "$1: the log says why"
	for _ in $(seq 50); do
		[ "$(sinfo -h -N -p main -n n1 -o %T)" = drained ] && break
		sleep 0.1
	done
	is "$(sinfo -h -N -p main -n n1 -o %T)" drained "$1: the node is drained"
	is "$(job_state "$job")" PENDING "$1: the job is requeued"
	is "$(cat ran 2>/dev/null)" "" "$1: nothing ran"
	is "$(sed -n "s/.* job=$job cause=//p" "$dir/n1/gate.refusals")" "${2#*refused: }" "$1: the refusal is noted"
}

kernel=$(uname -r)

reset_nodes
echo mitgcm@2 >"$dir/lie"
as_user sbatch --parsable -w n1 --kernel-profile=mitgcm@3 --wrap='echo ran >ran'
job=$out
turned_away "another version" \
	"wanted mitgcm@3, node runs mitgcm@2 ($kernel), because it is another version"

reset_nodes
echo other >"$dir/lie"
as_user sbatch --parsable -w n1 --kernel-profile=mitgcm --wrap='echo ran >ran'
job=$out
turned_away "another profile" \
	"wanted mitgcm, node runs other@3 ($kernel), because it is another profile"

reset_nodes
node_is n1 mitgcm 3 17 1
as_user sbatch --parsable -w n1 --wrap='echo ran >ran'
job=$out
turned_away "a plain job on a profile's kernel" \
	"wanted stock, node runs mitgcm@3 ($kernel), because the node has not gone back to stock"

reset_nodes
rm "$dir/n1/node.state"
as_user sbatch --parsable -w n1 --wrap='env | grep KERNEL_BROKER; echo ran >ran'
job=$out
is "$(wait_job "$job")" COMPLETED "without node.state a plain job passes on a kernel of the firmware"
is "$(cat ran; cat "slurm-$job.out")" ran "and finds no kernel named in its environment"
rm -f ran

echo "quiet kernelbroker.token=0123456789abcdef0123456789abcdef" >"$dir/n1/proc/cmdline"
as_user sbatch --parsable -w n1 --wrap='echo ran >ran'
job=$out
turned_away "without node.state on a kernel of the broker" \
	"wanted stock, node runs $kernel, because Kernel Broker booted this kernel and it is not proven: the node's agent has not said what runs (no node.state)"

# --- a node whose kernel changes under a job: the backstop in task_init
reset_nodes
as_user sbatch --parsable -w n1 --wrap='
	touch started
	while [ ! -e changed ]; do sleep 0.1; done
	srun echo ran >ran'
job=$out
# RUNNING is not enough: slurmctld says so before the gate and the script's own
# task have passed.
for _ in $(seq 600); do
	[ ! -e started ] || break
	sleep 0.1
done
node_is n1 mitgcm 3 "$((job + 1))" 1
touch changed
is "$(wait_job "$job")" FAILED "a step on a kernel not its own fails"
is "$(cat ran 2>/dev/null)" "" "and runs nothing"
out=$(cat "slurm-$job.out")
has "task refused: node runs mitgcm@3 ($kernel), because the node was prepared for job $((job + 1)), this is job $job" \
	"and the user can read why"
is "$(sinfo -h -N -p main -n n1 -o %T)" idle "the node is not drained by it"
rm -f ran started changed
reset_nodes

# --- a node that is reset under a profile job, and runs stock in the midst of it
loses() { # description cause how...
	local text=$1 cause=$2
	shift 2
	reset_nodes
	as_user sbatch --parsable -w n1 --kernel-profile=mitgcm --wrap='
		touch started
		while [ ! -e changed ]; do sleep 0.1; done
		if [ -e forget ]; then unset SLURM_SPANK_KERNEL_PROFILE KERNEL_BROKER_PROFILE; fi
		srun echo ran >ran'
	job=$out
	for _ in $(seq 600); do
		[ ! -e started ] || break
		sleep 0.1
	done
	"$@"
	touch changed
	is "$(wait_job "$job")" FAILED "$text: the step fails"
	is "$(cat ran 2>/dev/null)" "" "$text: and runs nothing"
	out=$(cat "slurm-$job.out")
	has "task refused: node runs stock@1 ($kernel), because $cause" "$text: and the user can read why"
	rm -f ran started changed forget
}
to_stock() { node_is n1 stock 1 "" 1; }
named_lost() {
	touch forget
	to_stock
	echo "lost=5,$job" >>"$dir/n1/node.state"
}
loses "a step of a profile job on stock" "it is another profile" to_stock
loses "a job whose kernel is lost, says the agent" \
	"the node was booted while the job was on it and has lost the job's kernel" named_lost
reset_nodes
