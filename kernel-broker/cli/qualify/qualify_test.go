// SPDX-License-Identifier: Apache-2.0

package qualify

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// fakeSlurm are Slurm's commands with one node. A file named lose-COMMAND has the command do its work and lose the answer;
// refuse-COMMAND has it do nothing; away-COMMAND has the next one fail.
const fakeSlurm = `#!/bin/sh
cd "${0%/*}"
echo "${0##*/} $*" >>log
timeout() { [ -e "lose-$1" ] && rm "lose-$1" && echo "slurm_receive_msg: Socket timed out on send/recv operation" >&2 && exit 1; }
refuse() { [ -e "refuse-$1" ] && echo "Access/permission denied" >&2 && exit 1; }
away() { [ -e "away-$1" ] && rm "away-$1" && echo "Unable to contact slurm controller" >&2 && exit 1; }
case "${0##*/} $*" in
"scontrol --oneliner show node n1") echo "NodeName=n1 State=IDLE Partitions=p" ;;
"scontrol create reservation ReservationName="*)
	refuse create
	name=${3#ReservationName=}
	echo "$name" >reservation
	timeout create
	echo "Reservation created: $name" ;;
"scontrol --oneliner show reservation")
	away show
	[ -e reservation ] && echo "ReservationName=$(cat reservation) StartTime=now" || echo "No reservations in the system" ;;
"scontrol delete ReservationName="*) rm reservation ;;
"sbatch "*)
	refuse sbatch
	echo 1 >>jobs
	for a; do case $a in --comment=*) echo "$(wc -l <jobs) ${a#--comment=}" >>queue ;; esac; done
	timeout sbatch
	wc -l <jobs ;;
"squeue "*--nodelist=*) ;;
"squeue "*--name=kernel-qualify*) away squeue; cat queue 2>&- ;;
"squeue "*--jobs=*) ;;
"scancel "*) ;;
*) echo "$*" >&2; exit 9 ;;
esac
exit 0
`

// An answer of slurmctld that is lost, after it did what it was asked for, costs neither the round nor the reservation.
func TestLostAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		files []string
		words string // of the error
		jobs  int
	}{
		"none":                        {nil, "", 2},
		"reservation":                 {[]string{"lose-create"}, "", 2},
		"reservation, slurmctld away": {[]string{"lose-create", "away-show"}, "", 2},
		"job":                         {[]string{"lose-sbatch"}, "", 2},
		"job, slurmctld away":         {[]string{"lose-sbatch", "away-squeue"}, "", 2},
		"no reservation":              {[]string{"refuse-create"}, "cannot be reserved: scontrol create reservation: exit status 1: Access/permission denied", 0},
		"no job":                      {[]string{"refuse-sbatch"}, "round 1 of 2: sbatch --parsable --job-name=kernel-qualify: exit status 1: Access/permission denied", 0},
	} {
		dir := t.TempDir()
		for _, command := range []string{"scontrol", "squeue", "sbatch", "scancel"} {
			if err := os.WriteFile(filepath.Join(dir, command), []byte(fakeSlurm), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for _, file := range c.files {
			if err := os.WriteFile(filepath.Join(dir, file), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		var asked []uint32
		o := Options{Node: "n1", Kernel: "mitgcm", Rounds: 2, RoundLimit: time.Minute, Scontrol: filepath.Join(dir, "scontrol"),
			Job: func(_ context.Context, id uint32) (*api.Job, error) {
				asked = append(asked, id)
				return &api.Job{JobId: id, Phase: api.AllocationPhase_ALLOCATION_PHASE_DONE}, nil
			},
			Done: func(int) {}, Warn: func(text string) { t.Errorf("%s: %s", name, text) }}
		result, err := Run(t.Context(), o)
		if c.words == "" && err != nil || c.words != "" && (err == nil || !strings.Contains(err.Error(), c.words)) {
			t.Errorf("%s: %v", name, err)
		}
		if len(result.Rounds) != c.jobs || fmt.Sprint(asked) != fmt.Sprint([]uint32{1, 2}[:c.jobs]) {
			t.Errorf("%s: rounds %+v, asked for %v", name, result.Rounds, asked)
		}
		if _, err := os.Stat(filepath.Join(dir, "reservation")); err == nil {
			t.Errorf("%s: the reservation is left", name)
		}
	}
}

// Who interrupts while the answer is lost leaves no job and no reservation.
func TestInterruptedWhileAnAnswerIsLost(t *testing.T) {
	for _, lost := range []string{"lose-create", "lose-sbatch"} {
		dir := t.TempDir()
		for _, command := range []string{"scontrol", "squeue", "sbatch", "scancel"} {
			text := strings.Replace(fakeSlurm, `rm "lose-$1" && echo`, `rm "lose-$1" && touch lost && sleep 60 && echo`, 1)
			if err := os.WriteFile(filepath.Join(dir, command), []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, lost), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		ctx, interrupt := context.WithCancel(t.Context())
		go func() {
			for ctx.Err() == nil {
				if _, err := os.Stat(filepath.Join(dir, "lost")); err == nil {
					interrupt()
				}
				time.Sleep(10 * time.Millisecond)
			}
		}()
		_, err := Run(ctx, Options{Node: "n1", Kernel: "mitgcm", Rounds: 1, RoundLimit: time.Minute, Scontrol: filepath.Join(dir, "scontrol"),
			Job:  func(ctx context.Context, _ uint32) (*api.Job, error) { return nil, ctx.Err() },
			Done: func(int) {}, Warn: func(string) {}})
		interrupt()
		log, _ := os.ReadFile(filepath.Join(dir, "log"))
		if _, left := os.Stat(filepath.Join(dir, "reservation")); err == nil || left == nil {
			t.Errorf("%s: %v, reservation left %v", lost, err, left == nil)
		}
		if lost == "lose-sbatch" && !strings.Contains(string(log), "scancel 1") {
			t.Errorf("%s: ran\n%s", lost, log)
		}
	}
}
