// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/lab"
)

// stockPerRound: stock jobs are quick, and the difference to look for is small.
const stockPerRound = 3

// stock starts plain jobs on both clusters by turns; who is first changes with
// each pair.
func (r *run) stock(ctx context.Context) error {
	for i := range stockPerRound {
		turns := []func(context.Context) error{r.stockOnPlain, r.stockOnProduct}
		if (r.round+i)%2 == 1 {
			slices.Reverse(turns)
		}
		for _, turn := range turns {
			if err := turn(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *run) stockOnPlain(ctx context.Context) error {
	return r.oneStock(ctx, r.plain, plainStock, "sbatch to RUNNING, plain Slurm")
}

func (r *run) stockOnProduct(ctx context.Context) error {
	return r.oneStock(ctx, r.product, productStock, "sbatch to RUNNING, a job without profile")
}

func (r *run) oneStock(ctx context.Context, c *cluster, name, what string) error {
	if err := c.idle(ctx); err != nil {
		return err
	}
	m, err := c.start(ctx)
	if err != nil {
		return err
	}
	r.times.Add(name, what, m.seconds())
	r.looked(m)
	return c.idle(ctx)
}

// change measures a switch, then a second job with the same profile that
// waits for the first one's end.
func (r *run) change(ctx context.Context) error {
	if err := r.home(ctx); err != nil {
		return err
	}
	option := "--kernel-profile=" + profile
	m, err := r.product.start(ctx, option)
	if err != nil {
		return err
	}
	second, err := r.product.submit(ctx, option)
	if err != nil {
		return err
	}
	next, err := r.product.handover(ctx, m.job, second)
	if err != nil {
		return err
	}
	if err := r.home(ctx); err != nil {
		return err
	}
	var one, two Job
	if err := r.product.kernelctl(ctx, &one, "job", "show", m.job); err != nil {
		return err
	}
	if err := r.product.kernelctl(ctx, &two, "job", "show", second); err != nil {
		return err
	}
	if err := r.onProfile(m.job, one.During); err != nil {
		return err
	}
	if one.Restarts > 0 {
		r.trouble("round %d: job %s got its kernel at try %d only, which is no measure of a switch", r.round, m.job, one.Restarts+1)
		return nil
	}
	r.times.Add(switchTime, "sbatch to RUNNING with a switch", m.seconds())
	r.looked(m)
	for _, p := range phases(one.Timeline, m.begin, m.end) {
		r.phases.Add(p.name, "", p.seconds)
	}
	if !sameBoots(one.During, two.During) {
		r.trouble("round %d: job %s did not find job %s's kernel running, so no reuse was measured", r.round, second, m.job)
		return nil
	}
	r.times.Add(reuseTime, "end of a job to RUNNING of the next, same profile", next.seconds())
	for _, p := range phases(two.Timeline, next.begin, next.end) {
		r.reuse.Add(p.name, "", p.seconds)
	}
	return nil
}

// onProfile checks that the job's nodes were proven to run the profile's kernel:
// a time for the wrong kernel would be worth nothing.
func (r *run) onProfile(job string, during []Proof) error {
	if len(during) != len(r.product.Nodes()) {
		return fmt.Errorf("job %s: %d nodes have a proof, want %d", job, len(during), len(r.product.Nodes()))
	}
	for _, p := range during {
		if p.BuildID != r.kernel.BuildID {
			return fmt.Errorf("job %s: node %q ran build %s, want %s", job, p.Node, p.BuildID, r.kernel.BuildID)
		}
	}
	return nil
}

func sameBoots(a, b []Proof) bool {
	boots := func(list []Proof) []string {
		var out []string
		for _, p := range list {
			out = append(out, p.Node+" "+p.BootID)
		}
		slices.Sort(out)
		return out
	}
	return len(a) > 0 && slices.Equal(boots(a), boots(b))
}

// home waits until every node of the product's cluster is idle and proven to be
// back on its own kernel.
func (r *run) home(ctx context.Context) error {
	if err := r.product.idle(ctx); err != nil {
		return err
	}
	return lab.Wait(ctx, limit, "nodes on stock", func() (bool, error) {
		var list struct {
			Nodes []struct {
				Phase          string `json:"phase"`
				RunningProfile string `json:"running_profile"`
				Attested       bool   `json:"attested"`
			} `json:"nodes"`
		}
		if err := r.product.kernelctl(ctx, &list, "node", "list"); err != nil {
			return false, err
		}
		for _, n := range list.Nodes {
			if n.RunningProfile != "stock" || !n.Attested || n.Phase != "steady" {
				return false, nil
			}
		}
		return len(list.Nodes) == len(r.product.Nodes()), nil
	})
}

// waiting is the reference for reuse: two jobs, one behind the other.
func (r *run) waiting(ctx context.Context) error {
	if err := r.plain.idle(ctx); err != nil {
		return err
	}
	first, err := r.plain.start(ctx)
	if err != nil {
		return err
	}
	second, err := r.plain.submit(ctx)
	if err != nil {
		return err
	}
	m, err := r.plain.handover(ctx, first.job, second)
	if err != nil {
		return err
	}
	r.times.Add(plainHandover, "end of a job to RUNNING of the next, plain Slurm", m.seconds())
	return r.plain.idle(ctx)
}

// looked notes how finely the job's state was followed.
func (r *run) looked(m moment) {
	r.looks = append(r.looks, m.end.Sub(m.begin).Seconds()/float64(m.looks))
}

// trouble notes what did not work without ending the measurement.
func (r *run) trouble(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.result.Trouble = append(r.result.Trouble, text)
	r.say("%s", text)
}

func (r *run) say(format string, args ...any) {
	fmt.Fprintf(r.progress, "bench: %6.1fs  %s\n", time.Since(r.result.Begun).Seconds(), fmt.Sprintf(format, args...))
}
