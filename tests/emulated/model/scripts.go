// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"os"
	"path/filepath"
)

var users = []string{"alice", "bob"}

// stepScript writes down on which kernel a process of a job runs.
const stepScript = `#!/bin/bash
echo "step name=$1 job=$SLURM_JOB_ID step=$SLURM_STEP_ID restart=${SLURM_RESTART_COUNT:-0} node=$(hostname) release=$(uname -r) at=$(date +%T.%N)" >>"$HOME/model-record"
`

// jobScript says when it starts and ends, and stays for seconds or until it is
// let go.
const jobScript = `#!/bin/bash
note() {
	echo "$1 name=$SLURM_JOB_NAME job=$SLURM_JOB_ID task=$SLURM_ARRAY_TASK_ID restart=${SLURM_RESTART_COUNT:-0} node=$(hostname) release=$(uname -r) at=$(date +%T.%N)" >>"$HOME/model-record"
}
note start
srun "$HOME/model-step" "$SLURM_JOB_NAME"
case $1 in
held) until [ -e "$HOME/go-$SLURM_JOB_NAME" ]; do sleep 0.2; done ;;
*) sleep "$1" ;;
esac
note end
`

// expandScript gives a job's node to another, whose step then runs there.
const expandScript = `#!/bin/bash
scontrol update jobid="$SLURM_JOB_ID" NumNodes=0 || exit
unset "${!SLURM@}"
srun --jobid="$1" --overlap --immediate=5 "$HOME/model-step" "$2"
`

func (r *run) writeScripts() error {
	for _, user := range users {
		for name, text := range map[string]string{"model-step": stepScript, "model-job": jobScript, "model-expand": expandScript} {
			path := filepath.Join(r.c.Home(user), name)
			if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
				return fmt.Errorf("script: %w", err)
			}
			if err := os.Chmod(path, 0o755); err != nil {
				return fmt.Errorf("script: %w", err)
			}
		}
	}
	return nil
}

// letGo lets a job's script end.
func (r *run) letGo(j *job) error {
	j.letGo = true
	return os.WriteFile(filepath.Join(r.c.Home(j.user), "go-"+j.name), nil, 0o644)
}
