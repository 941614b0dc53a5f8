// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/rounded"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling/advice"
)

func (a *app) runWatchCommand() *cobra.Command {
	return a.command("watch JOB", "Show a job's figures while it runs", cobra.ExactArgs(1),
		func(ctx context.Context, args []string) error { return a.runWatch(ctx, args[0]) })
}

func (a *app) runWatch(ctx context.Context, name string) error {
	r, err := a.runOfJob(ctx, name)
	if err != nil {
		return err
	}
	conn, err := a.dial()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := api.NewRunServiceClient(conn).WatchRun(ctx, &api.WatchRunRequest{Id: r.GetId()})
	if err != nil {
		return err
	}
	w := watched{app: a, nodes: map[string]profiling.Result{}}
	for {
		news, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return w.end()
		}
		if err != nil {
			return err
		}
		if err := w.take(news); err != nil {
			return err
		}
	}
}

// runOfJob is the newest run of a job, by the job's name in Slurm.
func (a *app) runOfJob(ctx context.Context, name string) (*api.Run, error) {
	response, err := call(ctx, a, api.NewRunServiceClient, api.RunServiceClient.ListRuns, &api.ListRunsRequest{Limit: mostJobs})
	if err != nil {
		return nil, err
	}
	for _, r := range response.GetRuns() {
		if r.GetJobId() != 0 && (r.GetReference() == name || fmt.Sprint(r.GetJobId()) == name) {
			return r, nil
		}
	}
	return nil, fmt.Errorf("the broker has no profiling run of job %s: %w", name, kb.ErrNotFound)
}

// watched is the received state of a run.
type watched struct {
	app   *app
	run   *api.Run
	nodes map[string]profiling.Result
	last  string
	shown time.Time
}

func (w *watched) take(news *api.WatchRunResponse) error {
	w.run = news.GetRun()
	if state := runState(w.run); state != w.last {
		w.last = state
		w.app.say("run %d of job %s: %s %s", w.run.GetId(), runJob(w.run), state, w.run.GetReason())
	}
	if news.GetNode() == "" {
		return nil
	}
	var live profiling.Live
	if err := json.Unmarshal(news.GetFigures(), &live); err != nil {
		return fmt.Errorf("figures of node %q: %w", news.GetNode(), err)
	}
	if !w.app.isTable() {
		// On one line, whatever the node has between its figures.
		var line bytes.Buffer
		if err := json.Compact(&line, news.GetFigures()); err != nil {
			return fmt.Errorf("figures of node %q: %w", news.GetNode(), err)
		}
		_, err := fmt.Fprintf(w.app.Stdout, "%s\n", escaped(line.Bytes()))
		return err
	}
	w.nodes[news.GetNode()] = live.Result
	// Nodes speak one after the other; a picture of each half second is enough.
	if time.Since(w.shown) < watchPause {
		return nil
	}
	w.shown = time.Now()
	return w.picture()
}

// mostWatched calls are shown.
const mostWatched = 5

func (w *watched) picture() error {
	var results []profiling.Result
	for _, node := range slices.Sorted(maps.Keys(w.nodes)) {
		results = append(results, w.nodes[node])
	}
	all, err := profiling.Merge(results...)
	if err != nil {
		return err
	}
	all, _ = all.WithoutSlurm()
	return w.app.page(func(p *page) {
		line := fmt.Sprintf("%s  %d of %d nodes", time.Now().Format("15:04:05 MST"), len(w.nodes), len(w.run.GetNodes()))
		if share, known := all.KernelShare(); known {
			line += ", " + advice.Percent(share) + " of the CPU time in the kernel"
		}
		if all.Noise != nil {
			line += ", " + advice.Percent(1-all.Noise.Left()) + " taken by others"
		}
		if all.IO != nil {
			files := all.IO.Total(profiling.RegularFiles)
			line += fmt.Sprintf(", read %s in %d calls, wrote %s in %d", rounded.Size(files.Read.Bytes), files.Read.Calls, rounded.Size(files.Write.Bytes), files.Write.Calls)
		}
		for _, name := range all.Collectors {
			if c, _ := all.Covered(name); !c.Exact {
				line += ", " + string(name) + " estimated from " + advice.Percent(c.Share()) + " of the time"
			}
		}
		p.sentence("%s", line)
		if all.Syscalls == nil || len(all.Syscalls.Calls) == 0 {
			return
		}
		p.head("CALL", "CALLS", "TIME", "EACH", "99 % BELOW")
		for _, c := range all.Syscalls.Calls[:min(len(all.Syscalls.Calls), mostWatched)] {
			p.row(c.Name, c.Count, time.Duration(c.NS), time.Duration(c.NS/max(c.Count, 1)), time.Duration(c.Below(0.99)))
		}
	})
}

func (w *watched) end() error {
	if w.run != nil && w.app.isTable() {
		w.app.say("kernelctl run report %d shows the findings", w.run.GetId())
	}
	return nil
}
