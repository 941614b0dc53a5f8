// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// teller tells an srun or salloc that waits what its nodes do, by scontrol notify: they print it as their own words, and
// with --quiet not at all. Slurm would send a batch job's words to a node that boots, so these hear nothing.
type teller struct {
	p     *prolog
	texts chan string
	done  chan struct{}
}

// Limits of what is told.
const (
	tellLimit = 2 * time.Second
	tellPause = 5 * time.Second // between two counts of the same step
)

func newTeller(p *prolog) *teller {
	t := &teller{p: p, texts: make(chan string, 16), done: make(chan struct{})}
	go t.run()
	return t
}

// say passes words on. The job does not wait for them, and slurmctld may be too busy for all.
func (t *teller) say(text string) {
	select {
	case t.texts <- text:
	default:
	}
}

// end waits until the last words are told, though not for a slurmctld that does not answer.
func (t *teller) end() {
	close(t.texts)
	select {
	case <-t.done:
	case <-time.After(tellLimit):
	}
}

func (t *teller) run() {
	defer close(t.done)
	var last, step string
	var at time.Time
	waits := false
	for text := range t.texts {
		now, _, counted := strings.Cut(text, ",")
		if text == "" || text == last || counted && now == step && time.Since(at) < tellPause {
			continue
		}
		if last == "" {
			if waits = t.p.scontrol.waits(t.p.job.id.Job); !waits {
				t.p.log.Debug("nobody waits for the job at a terminal")
			}
		}
		last, step, at = text, now, time.Now()
		if !waits {
			continue
		}
		if err := t.p.scontrol.notify(t.p.job, text); err != nil {
			t.p.log.Debug("not told", "text", text, "error", err)
		}
	}
}

// batchColumns say of a job whether it is a script's.
const batchColumns = "JobID:12|,BatchFlag:12|"

// waits reports whether an srun or salloc waits for the job.
func (s scontrol) waits(job uint32) bool {
	s.limit = tellLimit
	id := strconv.FormatUint(uint64(job), 10)
	out, err := s.squeue(context.Background(), id, batchColumns)
	if err != nil {
		return false
	}
	for line := range strings.Lines(out) {
		if fields := strings.Split(line, "|"); len(fields) == 3 && strings.TrimSpace(fields[0]) == id {
			return strings.TrimSpace(fields[1]) == "0"
		}
	}
	return false
}

func (s scontrol) notify(j job, text string) error {
	s.limit = tellLimit
	_, err := s.run(context.Background(), "notify", strconv.FormatUint(uint64(j.id.Job), 10), fmt.Sprintf("kernel %s: %s", j.profile, kb.OneLine(text)))
	return err
}
