# SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later
# shellcheck shell=bash
# Sourced by real-slurm.sh: what is handed over at submit, and what is refused.
# shellcheck disable=SC2154  # out, rc and dir are real-slurm.sh's

for command in sbatch salloc srun; do
	as_user $command --help
	has "--kernel-profile=NAME[@VERSION]" "$command --help has the option"
	has "--kernel-profiling" "$command --help has the other option"
done

# --- refused at submit
as_user sbatch --kernel-profile=mitgmc --wrap=true
refused "unknown kernel profile \"mitgmc\"; did you mean \"mitgcm\"? ('kernelctl profile list' shows all)" \
	"an unknown name is refused with a near miss"
as_user sbatch --kernel-profile=quar --wrap=true
refused "quarantined: it did not boot twice" "a quarantined profile is refused with the broker's reason"
as_user sbatch --kernel-profile=mitgcm@9 --wrap=true
refused "unknown kernel profile \"mitgcm@9\"" "an unknown version is refused"
as_user sbatch --kernel-profile=Mit/gcm --wrap=true
refused "a name has 1 to 64" "a malformed name is refused"
as_user sbatch --kernel-profile=mitgcm,other --wrap=true
refused "one job has one profile" "a list is refused"
as_user sbatch --kernel-profile=mitgcm --kernel-profile=stock --wrap=true
refused "asks for mitgcm and for stock, but one job has one profile" "two profiles are refused"
as_user srun --kernel-profile=mitgmc true
refused "did you mean" "srun refuses the same way"
as_user salloc --kernel-profile=mitgmc true
refused "did you mean" "salloc refuses the same way"
as_user sbatch --kernel-profile=mitgcm --oversubscribe --wrap=true
refused "--oversubscribe conflicts with --kernel-profile=mitgcm" "--oversubscribe is refused"
as_user sbatch --kernel-profile=mitgcm --exclusive=user --wrap=true
refused "--exclusive=user conflicts with" "--exclusive=user is refused"
as_user sbatch --kernel-profile=mitgcm -p forced --wrap=true
refused "the partition forced always shares" "a partition that always shares is refused"

# --- a broker that cannot be reached, a name that the snapshot has not heard of
as_user sbatch --hold --parsable --kernel-profile=far --wrap=true
has "could not be checked (dial unix: connection refused)" "without the broker there is a warning"
is "$rc" 0 "and the job is accepted"
as_user sbatch --hold --parsable --kernel-profile=slow --wrap=true
has "did not answer within 2 s" "a broker that hangs costs 2 s"
as_user sbatch --hold --parsable --kernel-profile=secret@7 --wrap=true
is "$rc" 0 "what a stale snapshot does not know is the broker's to accept"
hasnt warning "and that says nothing"
scancel -u 65534

# --- sbatch on two nodes
as_user sbatch --parsable -N2 --no-requeue --kernel-profile=mitgcm --wrap='
	srun -l env
	srun --kernel-profile=other true
	srun --kernel-profile=mitgcm echo same is fine
	srun --kernel-profile=mitgcm@2 true
	srun --kernel-profile=stock true
	srun --kernel-profile=mitgcm@3 env'
job=$out
is "$(wait_job "$job")" COMPLETED "sbatch -N2 --kernel-profile=mitgcm completes"
is "$(prolog_env "$job")" mitgcm "PrologSlurmctld sees SPANK_KERNEL_PROFILE"
is "$(other_spank "$job")" "" "and nothing else through SPANK"
out=$(scontrol show job "$job")
has "AdminComment=kernel-broker: mitgcm requested; norequeue" "AdminComment says what was asked"
has "Requeue=1" "the job may be requeued"
has "Reboot=1" "the nodes must boot"
has "OverSubscribe=NO" "the nodes are not shared"
out=$(cat "slurm-$job.out")
has "0: KERNEL_BROKER_PROFILE=mitgcm" "task 0 knows its profile"
has "1: KERNEL_BROKER_VERSION=3" "task 1 knows its version"
has "1: KERNEL_BROKER_RELEASE=$(uname -r)" "and its release"
has "1: KERNEL_BROKER_BUILD_ID=$(cluster_build_id)" "and its build id"
has "same is fine" "a step may ask for its job's profile"
has "--kernel-profile=other: job $job runs on mitgcm@3" "a step may not ask for another"
has "--kernel-profile=mitgcm@2: job $job runs on mitgcm@3" "nor for another version"
has "--kernel-profile=stock: job $job runs on mitgcm@3" "nor for stock"
hasnt "SLURM_KERNEL_PROFILE_" "the step's requests are not left in its environment"

# --- a job from within a job is a job of its own
reset_nodes
as_user sbatch --parsable --kernel-profile=mitgcm --wrap='sbatch --hold --parsable --wrap="env; srun env"'
job=$out
is "$(wait_job "$job")" COMPLETED "a profile job submits another"
inner=$(tail -n 1 "slurm-$job.out" || true)
all_stock
scontrol release "$inner"
is "$(wait_job "$inner")" COMPLETED "a plain job submitted by a profile job completes"
is "$(prolog_env "$inner")" "" "and has no profile"
out=$(cat "slurm-$inner.out")
hasnt "mitgcm" "nor anything of it in its environment"
has "KERNEL_BROKER_PROFILE=stock" "but the name of its own kernel"

# --- stock is a plain job
as_user sbatch --parsable --kernel-profile=stock --wrap=true
job=$out
is "$(wait_job "$job")" COMPLETED "--kernel-profile=stock completes"
is "$(prolog_env "$job")" "" "and exports nothing"
out=$(scontrol show job "$job")
hasnt "Reboot=1" "and boots nothing"
hasnt "kernel-broker" "and has no comment of ours"

# --- profiling, without a profile and with one
as_user sbatch --parsable --kernel-profiling --wrap='env; srun env; srun --kernel-profiling true || :'
job=$out
is "$(wait_job "$job")" COMPLETED "--kernel-profiling alone completes"
is "$(prolog_env "$job")" "" "and has no profile"
out=$(scontrol show job "$job")
has "AdminComment=kernel-broker: stock requested; profiling=io,syscalls,noise" "its collectors are the default ones"
hasnt "Reboot=1" "it boots nothing"
out=$(cat "slurm-$job.out")
has "--kernel-profiling is for a whole job, and job $job has begun" "a step cannot ask"
reset_nodes
as_user sbatch --parsable --kernel-profiling=noise,io --kernel-profile=mitgcm --wrap='sbatch --hold --parsable --wrap=true'
job=$out
is "$(wait_job "$job")" COMPLETED "with a profile it completes"
out=$(scontrol show job "$job")
has "AdminComment=kernel-broker: mitgcm requested; profiling=io,noise" "both are noted"
inner=$(tail -n 1 "slurm-$job.out" || true)
out=$(scontrol show job "$inner")
hasnt "profiling" "a job from within is not profiled"
scancel "$inner"
all_stock
as_user sbatch --kernel-profiling= --wrap=true
refused '--kernel-profiling=: a list of collectors is missing' "an empty list is refused"
as_user sbatch --kernel-profiling=io,bogus --wrap=true
refused 'there is no collector "bogus"' "an unknown collector is refused"
as_user sbatch --kernel-profile=mitgcm --kernel-profiling=pgo --wrap=true
refused 'unknown kernel profile "mitgcm-instrumented"' "pgo needs the instrumented kernel"
refused "'kernelctl kernel build mitgcm --instrumented'" "and the user hears where it comes from"

# --- a script, an empty environment, an array
cat >script <<-'EOF'
	#!/bin/sh
	#SBATCH --kernel-profile=mitgcm@2
	env
EOF
as_user sbatch --parsable --export=NONE script
job=$out
is "$(wait_job "$job")" COMPLETED "#SBATCH --kernel-profile and --export=NONE complete"
is "$(prolog_env "$job")" "mitgcm@2" "the version is handed over"
out=$(cat "slurm-$job.out")
has "KERNEL_BROKER_VERSION=2" "the job knows it"
as_user sbatch --parsable --kernel-profile=mitgcm script
refused "asks for mitgcm@2 and for mitgcm" "script and command line may not differ"
reset_nodes
# Tasks that end within the second in which their slurmd has started would let
# slurmctld take that start for the boot that the next task waits for.
as_user sbatch --parsable --kernel-profile=mitgcm -a 0-2 --wrap='env | grep KERNEL_BROKER_PROFILE; sleep 2'
job=$out
for task in 0 1 2; do
	is "$(wait_job "${job}_$task")" COMPLETED "array task $task completes"
	is "$(cat "slurm-${job}_$task.out")" KERNEL_BROKER_PROFILE=mitgcm "on its kernel"
done

# --- a default in the environment
reset_nodes
as_user env SLURM_SPANK__SLURM_SPANK_OPTION_kernel_profile_kernel_profile=mitgcm \
	sbatch --parsable --wrap=true
job=$out
is "$(wait_job "$job")" COMPLETED "a default from the environment completes"
is "$(prolog_env "$job")" mitgcm "and is handed over"
reset_nodes
as_user env SLURM_SPANK__SLURM_SPANK_OPTION_kernel_profile_kernel_profile=mitgcm \
	sbatch --parsable --kernel-profile=stock --wrap=true
job=$out
is "$(wait_job "$job")" COMPLETED "the option goes before the default"
is "$(prolog_env "$job")" "" "which leaves nothing behind"
as_user env SLURM_SPANK__SLURM_SPANK_OPTION_kernel_profile_kernel_profile=mitgmc \
	sbatch --parsable --wrap=true
refused "did you mean" "a wrong default is refused too"

# --- srun and salloc
reset_nodes
as_user srun -N2 --kernel-profile=mitgcm sh -c 'env; srun --overlap --kernel-profile=other -N1 true'
is "$(grep -c '^KERNEL_BROKER_PROFILE=mitgcm' <<<"$out")" 2 "srun --kernel-profile runs on both nodes"
has "runs on mitgcm@3, and all steps" "srun in its tasks knows the profile"
hasnt "SLURM_KERNEL_PROFILE_STEP=" "and the request of srun itself is gone"
reset_nodes
as_user salloc -N1 --kernel-profile=mitgcm sh -c '
	srun env
	srun --kernel-profile=mitgcm echo same is fine
	srun --kernel-profile=other true
	srun --kernel-profile=mitgcm@2 true'
has "KERNEL_BROKER_PROFILE=mitgcm" "srun in salloc runs on the profile"
has "same is fine" "a step in salloc may ask for the same"
has "--kernel-profile=other: job" "a step in salloc may not ask for another"
has "because the step asks for mitgcm@2" "the node refuses a version that only it knows"

# --- heterogeneous jobs: a profile per component
het() { # description first second command...
	local text=$1 first=$2 second=$3
	shift 3
	reset_nodes
	as_user "$@"
	job=${out##* }
	is "$(wait_job "$job")" COMPLETED "$text completes"
	is "$(prolog_env "$job")" "$first" "$text: first component"
	is "$(prolog_env $((job + 1)))" "$second" "$text: second component"
	is "$(other_spank "$job")$(other_spank $((job + 1)))" "" "$text: nothing leaks"
}
het "sbatch profile : plain" mitgcm "" \
	sbatch --parsable --kernel-profile=mitgcm -N1 : -N1 --wrap='srun --het-group=0,1 -l env'
out=$(cat "slurm-$job.out")
has "0: KERNEL_BROKER_PROFILE=mitgcm" "the first component's task is on its kernel"
has "1: KERNEL_BROKER_PROFILE=stock" "the second one's is on stock"
het "sbatch plain : profile" "" mitgcm \
	sbatch --parsable -N1 : --kernel-profile=mitgcm -N1 --wrap='
		srun --het-group=1 --kernel-profile=mitgcm echo same is fine
		srun --het-group=0 --kernel-profile=mitgcm true
		srun --het-group=0 --kernel-profile=stock echo stock is fine'
out=$(cat "slurm-$job.out")
has "same is fine" "a step in the second component may ask for its profile"
has "because the step asks for mitgcm" "the first component's node refuses it"
has "stock is fine" "and runs stock"
het "sbatch profile : other profile" mitgcm@2 secret \
	sbatch --parsable --kernel-profile=mitgcm@2 -N1 : --kernel-profile=secret -N1 --wrap=true
cat >hetscript <<-'EOF'
	#!/bin/sh
	#SBATCH -N1 --kernel-profile=mitgcm
	#SBATCH hetjob
	#SBATCH -N1
	srun --het-group=0,1 -l env
EOF
het "#SBATCH hetjob" mitgcm "" sbatch --parsable hetscript
reset_nodes
as_user srun -N1 --kernel-profile=mitgcm env : -N1 env
is "$rc" 0 "srun profile : plain completes"
is "$(grep '^KERNEL_BROKER_PROFILE' <<<"$out" | sort | tr '\n' ' ')" \
	"KERNEL_BROKER_PROFILE=mitgcm KERNEL_BROKER_PROFILE=stock " "each component on its own kernel"
reset_nodes
as_user salloc -N1 : -N1 --kernel-profile=mitgcm srun --het-group=0,1 env
is "$(grep '^KERNEL_BROKER_PROFILE' <<<"$out" | sort | tr '\n' ' ')" \
	"KERNEL_BROKER_PROFILE=mitgcm KERNEL_BROKER_PROFILE=stock " "salloc plain : profile, too"

# --- changes after the submission
reset_nodes
as_user sbatch --hold --parsable --kernel-profile=mitgcm --wrap=true
job=$out
as_user scontrol update jobid="$job" OverSubscribe=YES
# Slurm 22.05 shows job_submit's words at submit only, not here.
refused "Requested operation not supported on this system for job $job" "a profile job cannot be made to share"
out=$(cat "$dir/log/slurmctld.log")
has "kernel-broker: change of job $job by user 65534 refused: a job with a kernel profile needs whole nodes" \
	"and slurmctld's log says why"
as_user scontrol update jobid="$job" TimeLimit=2
is "$rc" 0 "its time limit can be changed"
as_user scontrol update jobid="$job" partition=forced
refused "Requested operation not supported" "nor can it move to a partition that shares"
# Lua sees a new job in the second after its submission (last_lua_jobs_update).
sleep 1
as_user sbatch --dependency=expand:"$job" --wrap=true
refused "job $job has a kernel profile, and no nodes can be added to it" "no plain job's nodes are added to it"
as_user sbatch --hold --parsable --wrap=true
plain=$out
as_user sbatch --kernel-profile=mitgcm --dependency=expand:"$plain" --wrap=true
refused "cannot be added to another job's" "nor its nodes to a plain job"
as_user scontrol update jobid="$plain" dependency=expand:"$job"
refused "Job dependency problem for job $plain" "nor later"
scancel "$plain"
reset_nodes
