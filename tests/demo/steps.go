// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/kernelbroker/kernelbroker/tests/lab"
)

// before shows the nodes' kernels, and a user's choices.
func (d *demo) before(ctx context.Context) error {
	d.result.StockRelease = d.lab.Kernel().Release
	d.title("A user's view")
	for _, argv := range [][]string{{"kernelctl", "profile", "list"}, {"kernelctl", "node", "list"}} {
		d.command(strings.Join(argv, " "))
		out, err := d.run(ctx, argv...)
		if err != nil {
			return err
		}
		for line := range strings.Lines(out) {
			fmt.Fprintf(d.out, "  %s", line)
		}
		fmt.Fprintln(d.out)
	}
	return nil
}

// special runs the job on the kernel made for it.
func (d *demo) special(ctx context.Context) error {
	d.title("The job on the kernel made for it")
	id, w, err := d.submit(ctx, "on-mitgcm", "--kernel-profile="+profile)
	if err != nil {
		return err
	}
	d.result.Special = w
	return d.settle(ctx, id)
}

// settle waits until the nodes are back and reads the broker's account.
func (d *demo) settle(ctx context.Context, id string) error {
	d.say("the nodes go back to the stock kernel")
	err := lab.Wait(ctx, limit, "the nodes of job "+id+" to be back", func() (bool, error) {
		d.result.Job = &Job{}
		err := d.kernelctl(ctx, d.result.Job, "job", "show", id)
		return d.result.Job.Phase == "done", err
	})
	if err != nil {
		return err
	}
	d.say("job %s: all nodes are back", id)
	return nil
}

// timeline prints the switch and proves the kernels.
func (d *demo) timeline(ctx context.Context) error {
	d.title("The switch, node by node")
	job := d.result.Job
	for _, node := range job.Nodes {
		fmt.Fprintf(d.out, "  %s\n", node)
		last := job.Timeline[0].At
		for _, e := range job.Timeline {
			if e.Node == node {
				fmt.Fprintf(d.out, "    %8.2fs  %-11s took %6.2fs  %s\n", e.At.Sub(job.Timeline[0].At).Seconds(), e.Event,
					e.At.Sub(last).Seconds(), e.Detail)
				last = e.At
			}
		}
	}
	d.title("Which kernel ran, proven by one-time token, boot id and GNU build id")
	table := tabwriter.NewWriter(d.out, 2, 4, 2, ' ', 0)
	fmt.Fprintln(table, "  NODE\tWHEN\tKERNEL\tRELEASE\tBUILD ID\tBOOT ID")
	for _, when := range []struct {
		word    string
		kernels []Kernel
	}{{"before", job.Before}, {"during", job.During}, {"after", job.After}} {
		for _, k := range when.kernels {
			fmt.Fprintf(table, "  %s\t%s\t%s@%d\t%s\t%.12s\t%s\n", k.Node, when.word, k.Profile, k.Version, k.Release, k.BuildID, k.BootID)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	d.proofs(job)
	return ctx.Err()
}

// proofs compares the broker's records with the job's data from the nodes.
func (d *demo) proofs(job *Job) {
	want := len(d.lab.Nodes())
	d.check(len(job.Before) == want && len(job.During) == want && len(job.After) == want,
		"the broker has a proof of each node before, during and after", fmt.Sprint(len(job.Before), len(job.During), len(job.After)))
	for i, k := range d.result.Special.Kernels {
		name := k.Node
		d.check(k.Profile == profile, name+": the job was told that it runs on "+profile, k.Profile)
		if i >= len(job.Before) || i >= len(job.During) || i >= len(job.After) {
			continue
		}
		before, during, after := job.Before[i], job.During[i], job.After[i]
		d.check(during.Profile == profile && during.BuildID == k.BuildID && during.BootID == k.BootID && during.Release == k.Release,
			name+": the kernel that the job read from the node is the one that was proven", k)
		d.check(during.BuildID != before.BuildID && during.BootID != before.BootID, name+": it is another kernel and another boot than before", during)
		d.check(after.Profile == "stock" && after.BuildID == before.BuildID && after.BootID != during.BootID,
			name+": afterwards it runs the stock kernel again, freshly booted", after)
	}
}

// stock runs the same job on the distribution's kernel.
func (d *demo) stock(ctx context.Context) error {
	d.title("The same job on the stock kernel")
	_, w, err := d.submit(ctx, "on-stock")
	if err != nil {
		return err
	}
	d.result.Stock = w
	for i, k := range w.Kernels {
		d.check(k.BuildID == d.result.Job.Before[i].BuildID, k.Node+": the second job ran on the stock kernel", k)
	}
	return nil
}

// compare sets the two runs side by side.
func (d *demo) compare(context.Context) error {
	d.title("Side by side (emulated processors: this shows that it works, not how fast hardware is)")
	table := tabwriter.NewWriter(d.out, 2, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "  \ton %s\ton stock\t\n", profile)
	a, b := d.result.Special, d.result.Stock
	fmt.Fprintf(table, "  submit to start, s\t%.1f\t%.1f\t\n", a.Queued, b.Queued)
	fmt.Fprintf(table, "  submit to end, s\t%.1f\t%.1f\t\n", a.Total, b.Total)
	for _, node := range d.lab.Nodes() {
		x, y := a.Nodes[node.Name()], b.Nodes[node.Name()]
		n := node.Name()
		fmt.Fprintf(table, "  %s I/O wall, s\t%.2f\t%.2f\t\n", n, x.Seconds.IO.Wall, y.Seconds.IO.Wall)
		fmt.Fprintf(table, "  %s I/O system, s\t%.2f\t%.2f\t\n", n, x.Seconds.IO.Sys, y.Seconds.IO.Sys)
		fmt.Fprintf(table, "  %s writes\t%d\t%d\t\n", n, x.Total.Writes, y.Total.Writes)
		fmt.Fprintf(table, "  %s output check\t%s\t%s\t\n", n, passed(x.OK), passed(y.OK))
		d.check(x.OK && y.OK, n+": the replay's own check of its output passed on both kernels", fmt.Sprint(x.OK, y.OK))
		d.check(x.Total == y.Total && x.Total.Writes > 0, n+": both runs issued the same calls", fmt.Sprint(x.Total, y.Total))
	}
	return table.Flush()
}

func passed(ok bool) string {
	if ok {
		return "passed"
	}
	return "FAILED"
}

// plain shows by a plain command that the nodes are on stock.
func (d *demo) plain(ctx context.Context) error {
	d.title("A plain job afterwards")
	d.command("srun -N2 uname -r")
	out, err := d.run(ctx, "srun", "-N2", "uname", "-r")
	if err != nil {
		return err
	}
	for release := range strings.Lines(out) {
		release = strings.TrimSpace(release)
		fmt.Fprintf(d.out, "  %s\n", release)
		d.check(release == d.result.Job.Before[0].Release, "a plain job runs on the stock kernel", release)
	}
	return nil
}
