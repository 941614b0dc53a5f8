package hook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/client"
)

// scontrolLimit bounds one question to slurmctld, which may be busy with the
// very locks that our caller waits for.
const scontrolLimit = 10 * time.Second

// scontrol runs Slurm's own program.
type scontrol struct {
	path, conf string
	limit      time.Duration
}

func newScontrol(c client.Config) scontrol { return scontrol{c.Scontrol, c.SlurmConf, scontrolLimit} }

func (s scontrol) run(ctx context.Context, arguments ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.path, arguments...) //nolint:gosec // G204: the configured program, no shell; jobs are numbers
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	if s.conf != "" {
		cmd.Env = append(cmd.Env, "SLURM_CONF="+s.conf)
	}
	var out, wrong bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &wrong
	// A group of its own dies as one when time is up.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		if errors.Is(err, syscall.ESRCH) {
			return nil
		}
		return err
	}
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("scontrol %s: %w: %s", strings.Join(arguments, " "), err, strings.TrimSpace(wrong.String()))
	}
	return out.String(), nil
}

// starting reports whether slurmctld still has this run of the job on its
// nodes. Only then may the prolog fail.
func (s scontrol) starting(ctx context.Context, j job) (bool, error) {
	out, err := s.run(ctx, "--oneliner", "show", "job", j.reference)
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(out) {
		fields := fieldsOf(line)
		if fields["JobId"] != fmt.Sprint(j.id.Job) {
			continue
		}
		state := fields["JobState"]
		return fields["Restarts"] == fmt.Sprint(j.id.Restart) &&
			(state == "RUNNING" || state == "CONFIGURING" || state == "SUSPENDED"), nil
	}
	return false, fmt.Errorf("scontrol show job %s: job %d is not in the answer", j.reference, j.id.Job)
}

// fieldsOf reads Key=Value words. The first of a key counts: what comes after
// the known ones may be text of the user's.
func fieldsOf(line string) map[string]string {
	fields := map[string]string{}
	for word := range strings.FieldsSeq(line) {
		if key, value, ok := strings.Cut(word, "="); ok {
			if _, has := fields[key]; !has {
				fields[key] = value
			}
		}
	}
	return fields
}

// hold puts the job back into the queue, held, with the reason where its user
// looks. The reason comes first: the requeue may end this process.
func (s scontrol) hold(ctx context.Context, j job, reason string) error {
	_, telling := s.run(ctx, "update", "jobid="+j.reference, "admincomment="+reason)
	_, holding := s.run(ctx, "requeuehold", j.whole)
	if holding != nil {
		// The hook of another component was first, and the job is pending. As
		// after a requeue its user, too, may release it.
		_, holding = s.run(ctx, "uhold", j.whole)
	}
	return errors.Join(telling, holding)
}
