// SPDX-License-Identifier: Apache-2.0

package emulated

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/lab"
	"github.com/kernelbroker/kernelbroker/tests/support/slurmroot"
)

// Cluster is a running emulated cluster. Its methods are safe for concurrent use.
type Cluster struct {
	options     Options
	mode        lab.Mode
	nodes       map[string]*Node
	holder      int
	holderEnded chan struct{}
	// tie is the end of a pipe whose closing ends the cluster.
	tie *os.File
	// stop ends the nodes' machines, and machines waits for them.
	stop     context.CancelFunc
	machines sync.WaitGroup
	boots    bootLog
}

// readyLimit is for a heavily loaded machine; a cluster needs seconds.
const readyLimit = 3 * time.Minute

// Up starts a cluster and returns when all its nodes are idle. After an error nothing runs any more, and the logs stay
// in the folder.
func Up(ctx context.Context, o Options) (*Cluster, error) {
	begin := time.Now()
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("folder: %w", err)
	}
	o.Dir = dir
	o = o.withBrokers()
	c := &Cluster{options: o, nodes: map[string]*Node{}}
	for i, name := range o.nodeNames() {
		c.nodes[name] = &Node{cluster: c, name: name, index: i + 1}
	}
	if c.mode, err = lab.DetectMode(); err != nil {
		return nil, err
	}
	if c.mode == lab.ModeSingle {
		return nil, errors.New("an emulated cluster has several users: it needs root, or a range of /etc/subuid and /etc/subgid")
	}
	if err := c.remove(ctx, false); err != nil {
		return nil, err
	}
	if err := c.up(ctx); err != nil {
		// The caller's context may be done; cleaning up must not depend on it.
		return nil, errors.Join(fmt.Errorf("cluster %q: %w", o.Dir, err), c.Down(context.WithoutCancel(ctx), true))
	}
	c.progress("up on Slurm %s: %d nodes idle after %.1f s", o.Slurm, o.Nodes, time.Since(begin).Seconds())
	return c, nil
}

func (c *Cluster) up(ctx context.Context) error {
	system, err := slurmroot.Find(ctx, c.options.Repo, c.options.Slurm)
	if err != nil {
		return err
	}
	if err := c.layOut(system.Dir); err != nil {
		return err
	}
	product, err := c.product(ctx, system)
	if err != nil {
		return err
	}
	if err := c.startHolder(ctx, system.Dir, product); err != nil {
		return err
	}
	if err := c.munged().Start(ctx); err != nil {
		return err
	}
	if c.options.Accounting {
		if err := c.startAccounting(ctx); err != nil {
			return err
		}
	}
	if c.options.TwoBrokers {
		if err := c.startEtcd(ctx); err != nil {
			return err
		}
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.stop = stop
	for _, n := range c.Nodes() {
		c.machines.Go(func() { n.machine(running) })
	}
	c.machines.Go(func() { c.buttons(running) })
	var broker, slurmctld error
	var both sync.WaitGroup
	both.Go(func() { slurmctld = c.Slurmctld().Start(ctx) })
	both.Go(func() {
		if broker = c.Broker().Start(ctx); broker == nil {
			broker = c.ApplyCatalog(ctx)
		}
		if broker == nil && c.options.TwoBrokers {
			broker = c.Standby().Start(ctx)
		}
	})
	both.Wait()
	if err := errors.Join(broker, slurmctld); err != nil {
		return err
	}
	return c.waitIdle(ctx)
}

// ApplyCatalog registers the catalog's folder with the broker.
func (c *Cluster) ApplyCatalog(ctx context.Context) error {
	return c.must(ctx, "root", "kernelctl", "profile", "apply", "/catalog", "--kernels", "/catalog/kernels")
}

func (c *Cluster) waitIdle(ctx context.Context) error {
	said := ""
	err := c.wait(ctx, readyLimit, "all nodes to be idle", func() (bool, error) {
		r, err := c.Exec(ctx, "root", "sinfo", "--noheader", "--Node", "--partition="+c.partition(), "--format=%N %T")
		said = r.Stdout
		idle := 0
		for line := range strings.Lines(said) {
			if strings.HasSuffix(strings.TrimSpace(line), " idle") {
				idle++
			}
		}
		return idle == c.options.Nodes, err
	})
	if err != nil {
		return fmt.Errorf("%w; they are\n%s", err, said)
	}
	// A node may be idle before the catalog is registered, when it does not know its kernel's profile yet.
	for _, n := range c.Nodes() {
		if !c.options.hasAgent(n.name) {
			continue
		}
		err := c.wait(ctx, readyLimit, n.name+" to know its profile", func() (bool, error) {
			r, err := n.Exec(ctx, "grep", "-qx", "profile="+StockName, "/run/kernel-broker/node.state")
			return r.Exit == 0, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// partition is one that has all nodes.
func (c *Cluster) partition() string {
	if c.options.Partitions == nil {
		return "main"
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(c.options.Partitions[0], "PartitionName="), " ")
	return name
}

// Options are those that the cluster was brought up with.
func (c *Cluster) Options() Options { return c.options }

// Home is a user's home folder as the host sees it.
func (c *Cluster) Home(user string) string { return c.path("home", user) }

// Path is the host's path of a file of the cluster. It does not reach the nodes' private files such as /run.
func (c *Cluster) Path(inside string) string { return c.path(inside) }

// Nodes are all of them.
func (c *Cluster) Nodes() []*Node {
	var list []*Node
	for _, name := range c.options.nodeNames() {
		list = append(list, c.nodes[name])
	}
	return list
}

// Node is n1, n2, ...; nil if there is no such node.
func (c *Cluster) Node(name string) *Node { return c.nodes[name] }

// Down ends everything in the cluster and removes its folder; with keep the logs
// and the configuration stay.
func (c *Cluster) Down(ctx context.Context, keep bool) error {
	if c.stop != nil {
		c.stop()
	}
	err := c.stopHolder()
	c.machines.Wait()
	return errors.Join(err, c.remove(ctx, keep))
}

// remove removes the cluster's folder, except the logs if keep is set.
func (c *Cluster) remove(ctx context.Context, keep bool) error {
	// Without root the users' files belong to ids of /etc/subuid: only their user namespace may remove them.
	what := []string{"rm", "-rf", "--", c.options.Dir}
	if keep {
		what = []string{"rm", "-rf", "--", c.options.Dir + "/product", c.path("var/lib"), c.path("catalog")}
	}
	if c.mode == lab.ModeSubuid {
		what = append([]string{"unshare", "--user", "--map-root-user", "--map-auto"}, what...)
	}
	if out, err := exec.CommandContext(ctx, what[0], what[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("folder %q: %w: %s", c.options.Dir, err, out)
	}
	return nil
}
