// SPDX-License-Identifier: Apache-2.0

// Package survey collects the facts about a site that one host can see, for the checks of package doctor: Slurm by its
// commands, the broker by its API, and files of this host. What could not be had is a fact, too, with the reason.
package survey

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/config"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/client"
	"github.com/kernelbroker/kernelbroker/kernel-broker/doctor"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/scontrol"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/slurmexec"
)

// Options are the caller's connection and the paths of this host's files.
type Options struct {
	Version string
	// Config is client.yaml; BrokerFile and AgentFile those of the daemons.
	Config, BrokerFile, AgentFile string
	// Dial connects to the broker once, by client.yaml or by other settings; address is where, for messages.
	Dial  func(settings *client.Config) (conn *grpc.ClientConn, address string, err error)
	Fetch func(ctx context.Context, digest string, size uint64, to io.Writer) error
}

// Paths where daemons have their configuration.
const (
	DefaultBrokerFile = "/etc/kernel-broker/broker.yaml"
	DefaultAgentFile  = config.DefaultPath
)

// limit of one question.
const limit = 10 * time.Second

// surveyor is a survey at work.
type surveyor struct {
	Options
	site   *doctor.Site
	client client.Config
	// agentConfig is agent.yaml, once it could be read.
	agentConfig config.Config
	// controller: slurmctld runs here. node is Slurm's name of this host; empty: it is no compute node.
	controller bool
	node       string
}

// Collect returns all facts that can be had.
func Collect(ctx context.Context, o Options) (*doctor.Site, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("host name: %w", err)
	}
	host, _, _ = strings.Cut(host, ".")
	s := &surveyor{Options: o, site: &doctor.Site{Host: host, Version: o.Version, Now: time.Now()}}
	s.clientFile()
	s.slurm(ctx)
	s.site.Client.Value.Counters = s.counters()
	if s.controller {
		s.site.Client.Value.Commands = missing(hookCommands(s.client))
	}
	s.brokerFile()
	s.agent(ctx)
	s.broker(ctx)
	s.programs()
	s.jobSubmit()
	s.slurmUser(ctx)
	s.plugin(ctx)
	s.port(ctx)
	s.disks()
	return s.site, nil
}

const (
	noController = "slurmctld runs on another host: run it there, too"
	noNode       = "this host is no compute node: run it there, too"
)

func (s *surveyor) clientFile() {
	f := doctor.ClientFile{Path: s.Config}
	c, err := client.LoadConfig(s.Config)
	if err != nil {
		f.Error = err.Error()
		c = client.FallbackConfig(s.Config)
	}
	s.client = c
	f.Local, f.TLS, f.PrologLimit, f.Cluster = client.Local(c.Broker), c.Trust.CA != "", c.PrologLimit, c.Trust.Cluster
	s.site.Client = doctor.Known(f)
}

// run runs a program of Slurm's.
func (s *surveyor) run(ctx context.Context, arguments ...string) (string, error) {
	out, _, err := slurmexec.Runner{Conf: s.client.SlurmConf, Limit: limit}.Run(ctx, s.client.Scontrol, arguments...)
	return out, err
}

// slurm asks slurmctld, and finds out what this host is.
func (s *surveyor) slurm(ctx context.Context) {
	// Without slurmctld the files say what this host is meant to be.
	s.controller = exists(s.BrokerFile)
	if exists(s.AgentFile) && !s.controller {
		s.node = s.site.Host
	}
	if !exists(s.client.Scontrol) {
		why := s.client.Scontrol + " is not on this host (scontrol of client.yaml)"
		s.site.Slurmctld, s.site.Slurm = doctor.Unknown[doctor.Answer](why), doctor.Unknown[doctor.SlurmConfig](why)
		s.site.SlurmNodes, s.site.Moving = doctor.Unknown[map[string]kb.SlurmNode](why), doctor.Unknown[[]string](why)
		s.site.Partitions = doctor.Unknown[[]doctor.Partition](why)
		return
	}
	text, err := s.run(ctx, "show", "config")
	if err == nil {
		err = ponged(text)
	}
	if err != nil {
		s.site.Slurmctld = doctor.Known(doctor.Answer{Error: err.Error()})
		const why = "slurmctld does not answer"
		s.site.Slurm, s.site.SlurmNodes = doctor.Unknown[doctor.SlurmConfig](why), doctor.Unknown[map[string]kb.SlurmNode](why)
		s.site.Moving, s.site.Partitions = doctor.Unknown[[]string](why), doctor.Unknown[[]doctor.Partition](why)
		return
	}
	c := doctor.ParseSlurmConfig(text)
	s.site.Slurmctld, s.site.Slurm = doctor.Known(doctor.Answer{}), doctor.Known(c)
	s.controller = false
	for _, host := range append(c.Values("SlurmctldHost"), c.Values("ControlMachine")...) {
		host, _, _ = strings.Cut(host, "(")
		host, _, _ = strings.Cut(host, ".")
		s.controller = s.controller || host == s.site.Host
	}
	s.slurmNodes(ctx)
	s.site.Moving = shown(ctx, s, "reservation", doctor.ParseMoving)
	s.site.Partitions = shown(ctx, s, "partition", doctor.ParsePartitions)
}

// shown is what scontrol shows of all objects of a kind.
func shown[T any](ctx context.Context, s *surveyor, kind string, parse func(string) T) doctor.Fact[T] {
	text, err := s.run(ctx, "--oneliner", "show", kind)
	if err != nil {
		return doctor.Unknown[T](err.Error())
	}
	return doctor.Known(parse(text))
}

// ponged refuses an output without a configuration.
func ponged(text string) error {
	if doctor.ParseSlurmConfig(text).Value("SLURM_VERSION") == "" {
		return fmt.Errorf("scontrol show config printed no SLURM_VERSION: %w", kb.ErrUnavailable)
	}
	return nil
}

func (s *surveyor) slurmNodes(ctx context.Context) {
	text, err := s.run(ctx, "--oneliner", "show", "node")
	if err != nil {
		s.site.SlurmNodes = doctor.Unknown[map[string]kb.SlurmNode](err.Error())
		return
	}
	nodes, hosts := map[string]kb.SlurmNode{}, map[string]string{}
	for line := range strings.Lines(text) {
		if n, ok := scontrol.ParseNode(line); ok {
			nodes[n.Name], hosts[n.Name] = n, hostName(line)
		}
	}
	s.site.SlurmNodes, s.node = doctor.Known(nodes), doctor.Local(s.site.Host, hosts)
}

// hostName is a node's; its first part.
func hostName(line string) string {
	for _, word := range strings.Fields(line) {
		if host, found := strings.CutPrefix(word, "NodeHostName="); found {
			host, _, _ = strings.Cut(host, ".")
			return host
		}
	}
	return ""
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
