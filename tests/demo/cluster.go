// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/lab"
)

// Kernel is what a node was proven, or reports, to run.
type Kernel struct {
	Node    string `json:"node"`
	Release string `json:"release"`
	BuildID string `json:"build_id"`
	BootID  string `json:"boot_id"`
	Profile string `json:"profile"`
	Version uint32 `json:"version"`
}

// Job is kernelctl's view of a job.
type Job struct {
	Phase    string   `json:"phase"`
	Reason   string   `json:"reason"`
	Nodes    []string `json:"nodes"`
	Timeline []struct {
		At     time.Time `json:"at"`
		Node   string    `json:"node"`
		Event  string    `json:"event"`
		Detail string    `json:"detail"`
	} `json:"timeline"`
	Before []Kernel `json:"before"`
	During []Kernel `json:"during"`
	After  []Kernel `json:"after"`
}

// Workload is the replay's output on each node, and the duration of its job.
type Workload struct {
	Kernels []Kernel          `json:"kernels"`
	Nodes   map[string]Replay `json:"nodes"`
	// Queued is the time from submit to the job's start, Total to its end.
	Queued float64 `json:"queued_seconds"`
	Total  float64 `json:"total_seconds"`
}

// Replay is the output of mitgcm-io.
type Replay struct {
	OK    bool `json:"ok"`
	Total struct {
		Files  int64 `json:"files"`
		Reads  int64 `json:"reads"`
		Writes int64 `json:"writes"`
		Bytes  int64 `json:"bytes"`
	} `json:"total"`
	Seconds struct {
		IO struct {
			Wall float64 `json:"wall"`
			User float64 `json:"user"`
			Sys  float64 `json:"sys"`
		} `json:"io"`
		Compute struct {
			Wall float64 `json:"wall"`
		} `json:"compute"`
	} `json:"seconds"`
}

// run runs a command on the front-end and returns its output.
func (d *demo) run(ctx context.Context, argv ...string) (string, error) {
	r, err := d.lab.Exec(ctx, user, argv...)
	if err != nil {
		return "", err
	}
	if r.Exit != 0 {
		return "", fmt.Errorf("%s: exit %d: %s", strings.Join(argv, " "), r.Exit, strings.TrimSpace(r.Stderr))
	}
	return strings.TrimSpace(r.Stdout), nil
}

func (d *demo) kernelctl(ctx context.Context, into any, args ...string) error {
	out, err := d.run(ctx, append(append([]string{"kernelctl"}, args...), "--output", "json")...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(out), into); err != nil {
		return fmt.Errorf("kernelctl %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// jobScript is the user's batch script. Each node runs the replay in its own /tmp and prints its kernel, read from the
// kernel itself.
const jobScript = `#!/bin/bash
#SBATCH --output=%x.out
srun bash -c '
  mitgcm-io --dir /tmp/replay --io-scale SCALE --json > "$HOME/$SLURM_JOB_NAME.$(hostname).json"
  id=$(od -An -v -tx1 /sys/kernel/notes | tr -d " \n" | grep -o "040000001400000003000000474e5500.\{40\}" | cut -c33-72)
  echo "{\"node\":\"$(hostname)\",\"release\":\"$(uname -r)\",\"build_id\":\"$id\",\"boot_id\":\"$(cat /proc/sys/kernel/random/boot_id)\",\"profile\":\"$KERNEL_BROKER_PROFILE\"}" \
    > "$HOME/$SLURM_JOB_NAME.$(hostname).kernel"'
`

// submit submits the job, follows it to its end and reads its output.
func (d *demo) submit(ctx context.Context, name string, options ...string) (string, *Workload, error) {
	script := strings.ReplaceAll(jobScript, "SCALE", fmt.Sprint(d.o.IOScale))
	if err := os.WriteFile(filepath.Join(d.lab.Home(user), "replay.sh"), []byte(script), 0o755); err != nil {
		return "", nil, err
	}
	argv := append([]string{"sbatch", "-N2"}, options...)
	d.command(strings.Join(append(argv, "replay.sh"), " "))
	begin := time.Now()
	id, err := d.run(ctx, append(append(argv, "--parsable", "--job-name="+name), "replay.sh")...)
	if err != nil {
		return "", nil, err
	}
	w := &Workload{Nodes: map[string]Replay{}}
	if err := d.follow(ctx, id, begin, w); err != nil {
		return id, nil, err
	}
	for _, node := range d.lab.Nodes() {
		base := filepath.Join(d.lab.Home(user), name+"."+node.Name())
		var r Replay
		if err := readJSON(base+".json", &r); err != nil {
			return id, nil, err
		}
		var k Kernel
		if err := readJSON(base+".kernel", &k); err != nil {
			return id, nil, err
		}
		w.Nodes[node.Name()] = r
		w.Kernels = append(w.Kernels, k)
	}
	return id, w, nil
}

func readJSON(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("the job left no %s: %w", filepath.Base(path), err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return nil
}

// follow prints changes of the job as the user sees them in Slurm.
func (d *demo) follow(ctx context.Context, id string, begin time.Time, w *Workload) error {
	last := ""
	return lab.Wait(ctx, limit, "job "+id, func() (bool, error) {
		out, err := d.run(ctx, "scontrol", "--oneliner", "show", "job", id)
		if err != nil {
			return false, err
		}
		state := field(out, "JobState")
		line := "job " + id + " " + state
		if _, comment, ok := strings.Cut(out, "AdminComment="); ok {
			comment, _, _ = strings.Cut(comment, " StdErr=")
			line += "  [" + strings.TrimSpace(comment) + "]"
		}
		nodes, err := d.run(ctx, "sinfo", "--noheader", "--Node", "--partition=main", "--format=%N %t (%E)")
		if err != nil {
			return false, err
		}
		if text := line + "\n" + nodes; text != last {
			d.say("%s", line)
			for n := range strings.Lines(nodes) {
				fmt.Fprintf(d.out, "           %s\n", strings.TrimSpace(strings.ReplaceAll(n, " (none)", "")))
			}
			last = text
		}
		switch state {
		case "RUNNING":
			if w.Queued == 0 {
				w.Queued = time.Since(begin).Seconds()
			}
		case "COMPLETED":
			w.Total = time.Since(begin).Seconds()
			return true, nil
		case "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL":
			return false, fmt.Errorf("job %s is %s", id, state)
		}
		if state == "PENDING" && field(out, "Priority") == "0" {
			return false, fmt.Errorf("job %s is held: %s", id, line)
		}
		return false, nil
	})
}

func field(line, key string) string {
	for _, f := range strings.Fields(line) {
		if v, ok := strings.CutPrefix(f, key+"="); ok {
			return v
		}
	}
	return ""
}
