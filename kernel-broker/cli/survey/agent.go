// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/config"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/local"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/client"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/doctor"
)

// Places where distributions keep slurmd's options and its unit.
var (
	slurmdOptions = []string{"/etc/default/slurmd", "/etc/sysconfig/slurmd"}
	slurmdWants   = "/etc/systemd/system/*.wants/slurmd.service"
	slurmdDropIns = []string{"/etc/systemd/system/slurmd.service.d/*.conf", "/usr/lib/systemd/system/slurmd.service.d/*.conf", "/lib/systemd/system/slurmd.service.d/*.conf"}
)

// agent looks at this compute node's.
func (s *surveyor) agent(ctx context.Context) {
	if s.node == "" {
		s.site.Agent = doctor.Unknown[doctor.Agent](noNode)
		return
	}
	a := doctor.Agent{Path: s.AgentFile, Node: s.node}
	c, err := config.Read(s.AgentFile)
	if errors.Is(err, fs.ErrPermission) {
		s.site.Agent = doctor.Unknown[doctor.Agent]("only root may read " + s.AgentFile)
		return
	}
	if err != nil {
		a.Error = err.Error()
		s.site.Agent = doctor.Known(a)
		return
	}
	s.agentConfig = c
	a.Node, a.TLS, a.TrustList = c.Node, c.TLS.Mode, c.Trust.List
	if !c.Trust.Required() {
		a.TrustList = ""
	}
	s.askAgent(ctx, &a)
	a.Commands = missing(agentCommands(c))
	a.Certificate = nodeCertificate(c)
	a.Kexec = doctor.Program{Path: c.Kexec.Program, Is: whatIs(c.Kexec.Program, "")}
	a.NoKexec, a.NoPanic, a.NoCgroup2 = noKexec(c), noPanic(c), noCgroup2(c.Profiling.Cgroups)
	a.Systemd = len(c.Slurmd.Start) > 0 && filepath.Base(c.Slurmd.Start[0]) == "systemctl"
	enabled, _ := filepath.Glob(slurmdWants) // the pattern is valid
	a.UnitEnabled = len(enabled) > 0
	a.DropIn = slices.ContainsFunc(slurmdDropIns, waitsForAgent)
	for _, path := range slurmdOptions {
		if text, err := readSome(path, maxText); err == nil && reportsBoots(string(text)) {
			a.Reports = path
		}
	}
	s.site.Agent = doctor.Known(a)
}

func (s *surveyor) askAgent(ctx context.Context, a *doctor.Agent) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answer, err := local.Ask(ctx, s.agentConfig.Socket, local.Request{Op: local.Status})
	switch {
	case err != nil:
		a.Answers = err.Error()
	case answer.Status == nil:
		a.Answers = "it answered without a status: " + answer.Error
	default:
		a.NotConnected = !answer.Status.Connected
		started := answer.Status.Configuration // an older agent does not tell it
		a.Edited = started != "" && started != s.agentConfig.Digest
	}
}

// nodeSettings reach the broker from a compute node as its agent does; nil where client.yaml names one on the network.
func (s *surveyor) nodeSettings() *client.Config {
	// Without the file, and in the package's, it is this host's socket, which a node has not.
	if a := s.site.Agent.Value; a == nil || a.Error != "" || !client.Local(s.client.Broker) {
		return nil
	}
	c, paths := s.agentConfig, nodePaths(s.agentConfig)
	settings := s.client
	settings.Broker, settings.Trust.CA = c.Broker, paths.Authorities
	if c.TLS.Mode == config.TLSNone {
		settings.Trust.CA = ""
	} else if own, err := mtls.NewFiles(paths).Own(); err == nil {
		settings.Trust.Cluster = own.Name.Cluster
	}
	return &settings
}

func nodePaths(c config.Config) mtls.Paths {
	if c.TLS.Mode == config.TLSSite {
		return mtls.Paths{Certificate: c.TLS.Certificate, Key: c.TLS.Key, Authorities: c.TLS.Authorities}
	}
	return mtls.NodePaths(c.TLS.Dir)
}

func nodeCertificate(c config.Config) doctor.Fact[doctor.Certificate] {
	path := nodePaths(c).Certificate
	text, err := os.ReadFile(path)
	if err != nil {
		return doctor.Unknown[doctor.Certificate](err.Error())
	}
	list, err := mtls.ParseCertificates(text)
	if err != nil {
		return doctor.Unknown[doctor.Certificate](path + ": " + err.Error())
	}
	return doctor.Known(timesOf(list[0]))
}

// waitsForAgent reports whether a drop-in that matches starts slurmd only behind the agent.
func waitsForAgent(pattern string) bool {
	list, _ := filepath.Glob(pattern) // the pattern is valid
	return slices.ContainsFunc(list, func(path string) bool {
		text, err := readSome(path, maxText)
		return err == nil && strings.Contains(string(text), "kernel-broker-agent wait-ready")
	})
}

// reportsBoots reports whether an environment file has -b in slurmd's options.
func reportsBoots(text string) bool {
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if key == "SLURMD_OPTIONS" || key == "SLURMD_OPTS" {
			return slices.Contains(strings.Fields(strings.Trim(value, `"'`)), "-b")
		}
	}
	return false
}

func (s *surveyor) cacheDir() string { return s.agentConfig.Cache.Dir }
