// SPDX-License-Identifier: Apache-2.0

package bench

// These run on the front-end as one process each: polling in the cluster's own
// namespaces is finer and cheaper than entering them for each look.

// startScript submits a job and waits for RUNNING. It prints the job's id, when
// it was submitted, when it was seen running, both in nanoseconds since 1970,
// and how often it looked.
const startScript = `begin=$(date +%s%N)
id=$(sbatch --parsable "$@") || exit 1
looks=0
while :; do
	state=$(squeue --noheader --states=all --format=%T --jobs="$id") || exit 1
	looks=$((looks + 1))
	case $state in
	RUNNING) break ;;
	PENDING | CONFIGURING) sleep 0.01 ;;
	*) echo "job $id is $state" >&2; exit 1 ;;
	esac
done
echo "$id $begin $(date +%s%N) $looks"
`

// handoverScript takes a running job and one that waits for its nodes. It
// prints when the first was seen ended and when the second was seen running.
const handoverScript = `state() { squeue --noheader --states=all --format=%T --jobs="$1"; }
while one=$(state "$1") && [ "$one" = RUNNING ]; do sleep 0.01; done
begin=$(date +%s%N)
looks=0
while :; do
	two=$(state "$2") || exit 1
	looks=$((looks + 1))
	case $two in
	RUNNING) break ;;
	PENDING | CONFIGURING) sleep 0.01 ;;
	*) echo "job $2 is $two" >&2; exit 1 ;;
	esac
done
case $one in
COMPLETING | COMPLETED) ;;
*) echo "job $1 is $one" >&2; exit 1 ;;
esac
echo "$2 $begin $(date +%s%N) $looks"
`

// registeredScript waits until slurmctld has a registration of a new slurmd
// from each node and calls it idle. Its arguments are NODE=STARTTIME, as
// slurmctld had it before; it prints when that was.
const registeredScript = `for pair; do
	node=${pair%%=*} was=${pair#*=}
	while :; do
		line=$(scontrol --oneliner show node "$node") || exit 1
		now=${line##*SlurmdStartTime=} now=${now%% *}
		case $line in
		*" State=IDLE "*) [ "$now" = "$was" ] || break ;;
		*" State=DOWN"* | *DRAIN*) echo "$line" >&2; exit 1 ;;
		esac
		sleep 0.01
	done
done
date +%s%N
`
