// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/client"
	shared "github.com/kernelbroker/kernelbroker/kernel-broker/internal/scontrol"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/slurmexec"
)

// scontrolLimit bounds one call of slurmctld, which may be waiting for locks that our caller holds.
const scontrolLimit = 10 * time.Second

// scontrol runs Slurm's own program, and squeue beside it.
type scontrol struct {
	path, conf string
	limit      time.Duration
}

func newScontrol(c client.Config) scontrol { return scontrol{c.Scontrol, c.SlurmConf, scontrolLimit} }

func (s scontrol) run(ctx context.Context, arguments ...string) (string, error) {
	return s.program(ctx, s.path, arguments...)
}

func (s scontrol) program(ctx context.Context, path string, arguments ...string) (string, error) {
	out, _, err := slurmexec.Runner{Environ: []string{"PATH=/usr/bin:/bin"}, Conf: s.conf, Limit: s.limit}.Run(ctx, path, arguments...)
	return out, err
}

// squeue returns the columns of a job in any state.
func (s scontrol) squeue(ctx context.Context, id, columns string) (string, error) {
	return s.program(ctx, s.squeuePath(), "--noheader", "--array", "--all", "--states=all",
		"--jobs="+id, "--Format="+columns)
}

// rebooted returns those of the nodes that slurmctld boots for another reason than
// a return.
func (s scontrol) rebooted(names []string) ([]string, error) {
	s.limit = time.Second
	out, err := s.run(context.Background(), "--oneliner", "show", "node", strings.Join(names, ","))
	if err != nil {
		return nil, err
	}
	var others []string
	for line := range strings.Lines(out) {
		if node, ok := shared.ParseNode(line); ok && node.RebootIssued() && !strings.HasPrefix(node.Reason, kb.ReasonReturn) {
			others = append(others, node.Name)
		}
	}
	return others, nil
}

// stateColumns are requested from squeue by name: scontrol prints the job's name, which a user can forge, before its
// state.
const stateColumns = "JobID:12|,RestartCnt:12|,State:20|"

// starting reports whether slurmctld still has this run of the job on its nodes. Only then may the prolog fail.
func (s scontrol) starting(ctx context.Context, j job) (bool, error) {
	out, err := s.squeue(ctx, strconv.FormatUint(uint64(j.id.Job), 10), stateColumns)
	if err != nil {
		return false, err
	}
	restart, state, err := stateOf(out, j.id.Job)
	if err != nil {
		return false, fmt.Errorf("squeue of job %s: %w", j.reference, err)
	}
	return restart == j.id.Restart && (state == "RUNNING" || state == "CONFIGURING" || state == "SUSPENDED"), nil
}

// stateOf finds a job's line among those of its array or of the heterogeneous
// job that it is part of.
func stateOf(out string, job uint32) (restart uint32, state string, err error) {
	for line := range strings.Lines(out) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "|")
		if len(fields) != strings.Count(stateColumns, "|")+1 {
			return 0, "", fmt.Errorf("line %.80q: %w", line, kb.ErrInvalid)
		}
		id, err := strconv.ParseUint(strings.TrimSpace(fields[0]), 10, 32)
		if err != nil {
			return 0, "", fmt.Errorf("line %.80q: %w", line, kb.ErrInvalid)
		}
		if uint32(id) != job {
			continue
		}
		count, err := strconv.ParseUint(strings.TrimSpace(fields[1]), 10, 32)
		if err != nil {
			return 0, "", fmt.Errorf("line %.80q: %w", line, kb.ErrInvalid)
		}
		return uint32(count), strings.TrimSpace(fields[2]), nil
	}
	return 0, "", fmt.Errorf("job %d is not in the answer: %w", job, kb.ErrNotFound)
}

// requeue puts a job back into the queue that has its nodes.
func (s scontrol) requeue(ctx context.Context, j job) error {
	_, err := s.run(ctx, "requeue", shared.Incomplete, j.whole)
	return err
}

// hold requeues the job held, with the reason in its comment. The reason is written first: the requeue may end this
// process.
func (s scontrol) hold(ctx context.Context, j job, reason string) error {
	_, telling := s.run(ctx, "update", "jobid="+j.reference, "admincomment="+s.commentFor(ctx, j, reason))
	_, holding := s.run(ctx, "requeuehold", shared.Incomplete, j.whole)
	// The hook of another component may have run first: the job is pending, and not held. The user may release it, as
	// after a requeue. A job that is held stays so, and one that was cancelled is none that can be held.
	if _, err := s.run(ctx, "uhold", j.whole); err == nil {
		holding = nil
	}
	return errors.Join(telling, holding)
}

// commentFor returns the product's part of the comment, which keeps what the job requested at submit. If slurmctld does
// not answer, it returns the reason alone.
func (s scontrol) commentFor(ctx context.Context, j job, reason string) string {
	comments, err := shared.Comments(j.id.Job, func(arguments ...string) (string, error) { return s.program(ctx, s.squeuePath(), arguments...) })
	if err != nil {
		return kb.Comment{Text: reason}.String()
	}
	return kb.SlurmJob{AdminComment: comments[0]}.KeepRequest(reason)
}

// squeuePath is squeue's, beside scontrol.
func (s scontrol) squeuePath() string { return filepath.Join(filepath.Dir(s.path), "squeue") }
