// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/lab"
)

const (
	user    = "alice"
	profile = "mitgcm"
	// limit bounds each wait; it is no figure, only an end to waiting.
	limit = 10 * time.Minute
)

// jobScript runs long enough to be seen running on a busy machine.
const jobScript = "#!/bin/sh\nsleep 2\n"

// cluster is one of the two labs.
type cluster struct {
	*lab.Lab
	name string
}

// moment is what a script on the front-end saw.
type moment struct {
	job        string
	begin, end time.Time
	looks      int
}

func (m moment) seconds() float64 { return m.end.Sub(m.begin).Seconds() }

// start submits a job over all nodes and waits until it runs.
func (c *cluster) start(ctx context.Context, options ...string) (moment, error) {
	out, err := c.script(ctx, startScript, c.job(options)...)
	if err != nil {
		return moment{}, fmt.Errorf("job on the %s cluster: %w", c.name, err)
	}
	return parseMoment(out)
}

// handover waits for the change from one job to the next.
func (c *cluster) handover(ctx context.Context, first, second string) (moment, error) {
	out, err := c.script(ctx, handoverScript, first, second)
	if err != nil {
		return moment{}, fmt.Errorf("jobs %s and %s on the %s cluster: %w", first, second, c.name, err)
	}
	return parseMoment(out)
}

// submit submits a job and returns its id.
func (c *cluster) submit(ctx context.Context, options ...string) (string, error) {
	return c.run(ctx, append([]string{"sbatch", "--parsable"}, c.job(options)...)...)
}

func (c *cluster) job(options []string) []string {
	nodes := fmt.Sprintf("--nodes=%d", len(c.Nodes()))
	return append(append([]string{nodes, "--exclusive", "--output=/dev/null"}, options...), "bench.sh")
}

// prepare writes the user's batch script.
func (c *cluster) prepare() error {
	if err := os.WriteFile(filepath.Join(c.Home(user), "bench.sh"), []byte(jobScript), 0o755); err != nil {
		return fmt.Errorf("batch script: %w", err)
	}
	return nil
}

// idle waits until no job is left and every node is idle.
func (c *cluster) idle(ctx context.Context) error {
	err := lab.Wait(ctx, limit, "an empty queue", func() (bool, error) {
		out, err := c.run(ctx, "squeue", "--noheader")
		return out == "", err
	})
	if err == nil {
		err = c.WaitIdle(ctx, limit)
	}
	if err != nil {
		return fmt.Errorf("the %s cluster: %w", c.name, err)
	}
	return nil
}

// startTimes asks when slurmd of each node started, as NODE=TIME.
func (c *cluster) startTimes(ctx context.Context) ([]string, error) {
	var times []string
	for _, n := range c.Nodes() {
		line, err := c.run(ctx, "scontrol", "--oneliner", "show", "node", n.Name())
		if err != nil {
			return nil, err
		}
		_, rest, ok := strings.Cut(line, "SlurmdStartTime=")
		if !ok {
			return nil, fmt.Errorf("node %q: no SlurmdStartTime in %q", n.Name(), line)
		}
		started, _, _ := strings.Cut(rest, " ")
		times = append(times, n.Name()+"="+started)
	}
	return times, nil
}

// registered waits until every node has registered anew since startTimes.
func (c *cluster) registered(ctx context.Context, before []string) (time.Time, error) {
	out, err := c.script(ctx, registeredScript, before...)
	if err != nil {
		return time.Time{}, fmt.Errorf("registration of %s: %w", strings.Join(before, " "), err)
	}
	return nanoseconds(strings.TrimSpace(out))
}

// script runs a shell script on the front-end.
func (c *cluster) script(ctx context.Context, text string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return c.run(ctx, append([]string{"/bin/sh", "-c", text, "kb-bench"}, args...)...)
}

// run runs a command on the front-end as the user and returns what it printed.
func (c *cluster) run(ctx context.Context, argv ...string) (string, error) {
	r, err := c.Exec(ctx, user, argv...)
	if err != nil {
		return "", err
	}
	if r.Exit != 0 {
		return "", fmt.Errorf("command %q: exit %d: %s", argv[0], r.Exit, strings.TrimSpace(r.Stderr+r.Stdout))
	}
	return strings.TrimSpace(r.Stdout), nil
}

func (c *cluster) kernelctl(ctx context.Context, into any, args ...string) error {
	out, err := c.run(ctx, append(append([]string{"kernelctl"}, args...), "--output", "json")...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(out), into); err != nil {
		return fmt.Errorf("kernelctl %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// parseMoment reads "JOB BEGIN END LOOKS".
func parseMoment(line string) (moment, error) {
	f := strings.Fields(line)
	if len(f) != 4 {
		return moment{}, fmt.Errorf("moment %q: want four fields", line)
	}
	begin, err := nanoseconds(f[1])
	if err != nil {
		return moment{}, err
	}
	end, err := nanoseconds(f[2])
	if err != nil {
		return moment{}, err
	}
	looks, err := strconv.Atoi(f[3])
	if err != nil || looks < 1 || end.Before(begin) {
		return moment{}, fmt.Errorf("moment %q: makes no sense", line)
	}
	return moment{job: f[0], begin: begin, end: end, looks: looks}, nil
}

func nanoseconds(text string) (time.Time, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("time %q: %w", text, err)
	}
	return time.Unix(0, n), nil
}
