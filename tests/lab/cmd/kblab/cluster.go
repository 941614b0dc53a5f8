// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kernelbroker/kernelbroker/tests/lab"
	"github.com/kernelbroker/kernelbroker/tests/support/slurmroot"
)

// folder is the lab's folder as the flags and the environment say.
func (a *app) folder() (string, error) {
	if a.dir != "" {
		return a.dir, nil
	}
	if d := os.Getenv("KBLAB_DIR"); d != "" {
		return d, nil
	}
	return lab.DefaultDir()
}

// open attaches to the lab.
func (a *app) open() (*lab.Lab, error) {
	dir, err := a.folder()
	if err != nil {
		return nil, err
	}
	return lab.Open(dir)
}

func (a *app) upCommand() *cobra.Command {
	var o lab.Options
	var set []string
	c := &cobra.Command{
		Use:   "up",
		Short: "Bring the cluster up and wait until its nodes are idle",
		Args:  exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if o.Dir, err = a.folder(); err != nil {
				return err
			}
			if o.Slurm.Set, err = pairs(set); err != nil {
				return err
			}
			o.Progress = c.ErrOrStderr()
			_, err = lab.Up(c.Context(), o)
			return err
		},
	}
	f := c.Flags()
	f.IntVar(&o.Nodes, "nodes", 2, "number of nodes")
	f.StringVar(&o.Kernel, "kernel", "stock", "the nodes' own kernel, a folder of build/kernels: stock is Debian's, suite-stock a quick one")
	f.StringVar(&o.Slurm.Version, "slurm", slurmroot.Wanted(), "version of Slurm: "+strings.Join(slurmroot.Versions, ", "))
	f.IntVar(&o.Memory, "memory", 512, "MiB of each node")
	f.IntVar(&o.CPUs, "cpus", 1, "processors of each node")
	f.StringVar(&o.Accel, "accel", "", "kvm or tcg (default: find out by a probe boot)")
	f.BoolVar(&o.WithoutProduct, "without-product", false, "plain Slurm, no Kernel Broker")
	f.BoolVar(&o.WithoutTLS, "without-tls", false, "nodes and broker do not prove who they are")
	f.BoolVar(&o.ExternalEtcd, "external-etcd", false, "an etcd beside the broker instead of inside it")
	f.StringVar(&o.Product, "product", "", "folder of the built product (default: build in the repository)")
	f.IntVar(&o.Slurm.ReturnToService, "return-to-service", 0, "ReturnToService of slurm.conf")
	f.BoolVar(&o.Slurm.Cgroup, "cgroup", true, "keep jobs in cgroups of version 2, which profiling runs need")
	f.BoolVar(&o.Slurm.Accounting, "accounting", false, "slurmdbd with a database, accounts enforced, and the broker as a user of its own (packages: make deps-long)")
	f.BoolVar(&o.Slurm.REST, "rest", false, "slurmrestd, and tokens that slurmctld makes for users (packages: make deps-long)")
	f.StringSliceVar(&o.Slurm.SchedulerParameters, "scheduler-parameter", nil, "add to SchedulerParameters")
	f.StringArrayVar(&set, "slurm-set", nil, "KEY=VALUE for slurm.conf; an empty value removes the key")
	f.StringSliceVar(&o.KernelArgs, "kernel-arg", nil, "add to the nodes' kernel command line")
	f.DurationVar(&o.ReadyTimeout, "timeout", 0, "limit of the wait for idle nodes (default 3m)")
	f.BoolVar(&o.NoWait, "no-wait", false, "do not wait for idle nodes")
	return c
}

func pairs(list []string) (map[string]string, error) {
	m := map[string]string{}
	for _, s := range list {
		key, value, ok := strings.Cut(s, "=")
		if !ok || key == "" {
			return nil, usageError{fmt.Errorf("setting %q: want KEY=VALUE", s)}
		}
		m[key] = value
	}
	return m, nil
}

func (a *app) downCommand() *cobra.Command {
	var keep bool
	c := &cobra.Command{
		Use:   "down",
		Short: "End the cluster and remove its folder",
		Long:  "End the cluster and remove its folder. Where none is up, nothing is done.",
		Args:  exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			dir, err := a.folder()
			if err != nil {
				return err
			}
			return lab.Down(c.Context(), dir, keep)
		},
	}
	c.Flags().BoolVar(&keep, "keep-logs", false, "leave logs and consoles in the folder")
	return c
}

func (a *app) statusCommand() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the cluster and its nodes",
		Args:  exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return usageError{fmt.Errorf("output %q: want table or json", output)}
			}
			l, err := a.open()
			if err != nil {
				return err
			}
			s, err := l.Status(c.Context())
			if err != nil {
				return err
			}
			return printStatus(c, s, output)
		},
	}
	c.Flags().StringVar(&output, "output", "table", "table or json")
	return c
}

func printStatus(c *cobra.Command, s lab.Status, output string) error {
	out := c.OutOrStdout()
	if output == "json" {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(s)
	}
	product := "with Kernel Broker"
	if !s.Product {
		product = "plain Slurm"
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "%s: %s, %s mode, %s, firmware kernel %s\n", s.Dir, product, s.Mode, s.Accel, s.Kernel)
	fmt.Fprintln(w, "NODE\tADDRESS\tPOWER\tSLURM\tKERNEL\tCONSOLE")
	for _, n := range s.Nodes {
		power := "off"
		if n.Power {
			power = "on"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", n.Name, n.Address, power, dash(n.Slurm), dash(n.Release), n.Console)
	}
	return w.Flush()
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
