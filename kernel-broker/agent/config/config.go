// SPDX-License-Identifier: Apache-2.0

// Package config is the agent's configuration: strict YAML, where an unknown
// key is an error that names its line, over defaults from one constructor.
package config

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/anybroker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/strictyaml"
)

// DefaultPath is the default path of the agent's configuration.
const DefaultPath = "/etc/kernel-broker/agent.yaml"

// Config of the agent; agent.sample.yaml explains each key.
type Config struct {
	Node        string        `yaml:"node"`
	Broker      string        `yaml:"broker"`
	TLS         TLS           `yaml:"tls"`
	Cache       Cache         `yaml:"cache"`
	Slurmd      Slurmd        `yaml:"slurmd"`
	Kexec       Kexec         `yaml:"kexec"`
	Boot        Boot          `yaml:"boot"`
	Reboot      Reboot        `yaml:"reboot"`
	Trust       Trust         `yaml:"trust"`
	Profiling   Profiling     `yaml:"profiling"`
	Socket      string        `yaml:"socket"`
	NodeState   string        `yaml:"node_state"`
	Snapshot    string        `yaml:"snapshot"`
	BrokerGrace time.Duration `yaml:"broker_grace"`
	Proc        string        `yaml:"proc"`
	Sys         string        `yaml:"sys"`

	// Digest of the file's text; empty without one.
	Digest string `yaml:"-"`
}

// Cache of artifacts.
type Cache struct {
	Dir      string `yaml:"dir"`
	MaxBytes uint64 `yaml:"max_bytes"`
}

// TLS is how the node authenticates.
type TLS struct {
	Mode string `yaml:"mode"`
	// Dir and Token are for a certificate of the broker's authority.
	Dir   string `yaml:"dir"`
	Token string `yaml:"token"`
	// The others for one that the site puts there.
	Certificate string `yaml:"certificate"`
	Key         string `yaml:"key"`
	Authorities string `yaml:"authorities"`
}

// Issuers of certificates.
const (
	TLSOwn  = "own"
	TLSSite = "site"
	TLSNone = "none"
)

// Slurmd is how the node's Slurm daemon is started and stopped.
type Slurmd struct {
	Start        []string      `yaml:"start"`
	FirstStart   []string      `yaml:"first_start"`
	Stop         []string      `yaml:"stop"`
	PIDFile      string        `yaml:"pid_file"`
	MarkFile     string        `yaml:"mark_file"`
	StartTimeout time.Duration `yaml:"start_timeout"`
	StopTimeout  time.Duration `yaml:"stop_timeout"`
	// Scontrol is used while the broker is away; empty: never.
	Scontrol string `yaml:"scontrol"`
}

// Failed is the command that tells a slurmd that failed from one that was stopped;
// none where systemd does not run slurmd.
func (s Slurmd) Failed() []string {
	if !systemctl(s.Start) {
		return nil
	}
	return []string{s.Start[0], "is-failed", "--quiet", s.Start[len(s.Start)-1]}
}

// systemctl reports whether systemd carries the command out.
func systemctl(command []string) bool {
	return len(command) > 0 && filepath.Base(command[0]) == "systemctl"
}

// Kexec is how kernels are loaded and booted.
type Kexec struct {
	Program     string   `yaml:"program"`
	LoadArgs    []string `yaml:"load_args"`
	ExecuteArgs []string `yaml:"execute_args"`
	// Before runs before each kexec, BeforeTimeout bounds it. Execute replaces the
	// program's "-e".
	Before        []string      `yaml:"before"`
	BeforeTimeout time.Duration `yaml:"before_timeout"`
	Execute       []string      `yaml:"execute"`
}

// Boot is what the node adds to every kernel.
type Boot struct {
	Initrd        string   `yaml:"initrd"`
	KeepArguments []string `yaml:"keep_arguments"`
	ExtraDrivers  []string `yaml:"extra_drivers"`
}

// Reboot is how the machine reboots when an administrator requests that in Slurm.
type Reboot struct {
	Command []string `yaml:"command"`
}

// Trust is which kernels the node boots.
type Trust struct {
	// List is the path of the trust list; empty for none.
	List string `yaml:"list"`
	// RequireSignatures defaults to what Required returns.
	RequireSignatures *bool    `yaml:"require_signatures"`
	State             string   `yaml:"state"`
	StockFiles        []string `yaml:"stock_files"`
}

// Required reports whether a kernel without a valid signature is refused: by default if there is a trust list.
func (t Trust) Required() bool {
	if t.RequireSignatures != nil {
		return *t.RequireSignatures
	}
	return t.List != ""
}

func (t Trust) validate() error {
	if t.List == "" && t.Required() {
		return fmt.Errorf("trust.require_signatures: requires a trust.list: %w", kb.ErrInvalid)
	}
	for _, pattern := range t.StockFiles {
		if _, err := filepath.Match(pattern, ""); err != nil || !filepath.IsAbs(pattern) {
			return fmt.Errorf("trust.stock_files: %q is no pattern of absolute paths: %w", pattern, kb.ErrInvalid)
		}
	}
	return nil
}

// sample has the default of each key, for readers and for the agent.
//
//go:embed agent.sample.yaml
var sample []byte

// Default returns the configuration before a file is read. Node is the short
// host name; Broker has no default.
func Default() (Config, error) {
	host, err := os.Hostname()
	if err != nil {
		return Config{}, fmt.Errorf("host name: %w", err)
	}
	var c Config
	if err := strictyaml.Decode("agent.sample.yaml", sample, &c); err != nil {
		return Config{}, err
	}
	c.Node, _, _ = strings.Cut(host, ".")
	c.Broker = ""
	return c, nil
}

// Read loads the file over the defaults and checks the whole.
func Read(path string) (Config, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("configuration: %w", err)
	}
	c, err := Parse(path, raw)
	if err != nil {
		return Config{}, fmt.Errorf("configuration: %w", err)
	}
	c.Digest = digest.Of(raw)
	return c, nil
}

// Parse reads the text of the file at path over the defaults and checks the whole.
func Parse(path string, raw []byte) (Config, error) {
	c, err := Default()
	if err != nil {
		return Config{}, err
	}
	start, first := c.Slurmd.Start, c.Slurmd.FirstStart
	c.Slurmd.FirstStart = nil
	if err := strictyaml.Decode(path, raw, &c); err != nil && !errors.Is(err, io.EOF) {
		return Config{}, fmt.Errorf("%w: %w", err, kb.ErrInvalid)
	}
	// FirstStart's default belongs to Start's: a different Start also applies to the first start.
	if c.Slurmd.FirstStart == nil && slices.Equal(c.Slurmd.Start, start) {
		c.Slurmd.FirstStart = first
	}
	if err := c.validate(); err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

func (c Config) validate() error {
	if err := kb.ValidateNodeName(c.Node); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	for _, address := range anybroker.Split(c.Broker) {
		if host, port, err := net.SplitHostPort(address); err != nil || port == "" || host == "unix" {
			return fmt.Errorf("broker: %q is not HOST:PORT: %w", address, kb.ErrInvalid)
		}
	}
	if m := c.TLS.Mode; m != TLSOwn && m != TLSSite && m != TLSNone {
		return fmt.Errorf("tls.mode: %q is not own, site or none: %w", m, kb.ErrInvalid)
	}
	for _, p := range []struct {
		key, path string
		optional  bool
	}{
		{"cache.dir", c.Cache.Dir, false}, {"slurmd.pid_file", c.Slurmd.PIDFile, false}, {"slurmd.mark_file", c.Slurmd.MarkFile, false},
		{"kexec.program", c.Kexec.Program, false}, {"socket", c.Socket, false}, {"node_state", c.NodeState, false},
		{"snapshot", c.Snapshot, false}, {"proc", c.Proc, false}, {"sys", c.Sys, false},
		{"boot.initrd", c.Boot.Initrd, true}, {"slurmd.scontrol", c.Slurmd.Scontrol, true},
		{"trust.list", c.Trust.List, true}, {"trust.state", c.Trust.State, false},
		{"tls.dir", c.TLS.Dir, false}, {"tls.token", c.TLS.Token, false}, {"tls.certificate", c.TLS.Certificate, false},
		{"tls.key", c.TLS.Key, false}, {"tls.authorities", c.TLS.Authorities, false},
	} {
		if !filepath.IsAbs(p.path) && (p.path != "" || !p.optional) {
			return fmt.Errorf("%s: %q is not an absolute path: %w", p.key, p.path, kb.ErrInvalid)
		}
	}
	if len(c.Reboot.Command) == 0 {
		return fmt.Errorf("reboot.command: no command: %w", kb.ErrInvalid)
	}
	if err := c.Trust.validate(); err != nil {
		return err
	}
	if len(c.Slurmd.Start) == 0 {
		return fmt.Errorf("slurmd.start: no command: %w", kb.ErrInvalid)
	}
	if systemctl(c.Slurmd.Start) && len(c.Slurmd.FirstStart) > 0 && !systemctl(c.Slurmd.FirstStart) {
		return fmt.Errorf("slurmd.first_start: %q starts slurmd beside the unit that slurmd.start names, under the agent's own restrictions; set it to []: %w",
			c.Slurmd.FirstStart, kb.ErrInvalid)
	}
	for _, d := range []struct {
		key   string
		value time.Duration
	}{
		{"slurmd.start_timeout", c.Slurmd.StartTimeout}, {"slurmd.stop_timeout", c.Slurmd.StopTimeout}, {"broker_grace", c.BrokerGrace},
		{"kexec.before_timeout", c.Kexec.BeforeTimeout},
	} {
		if d.value <= 0 || d.value > time.Hour {
			return fmt.Errorf("%s: %v is not within 0 to 1h: %w", d.key, d.value, kb.ErrInvalid)
		}
	}
	if err := c.Profiling.validate(); err != nil {
		return err
	}
	if c.Cache.MaxBytes < 1<<20 {
		return fmt.Errorf("cache.max_bytes: %d is less than 1 MiB: %w", c.Cache.MaxBytes, kb.ErrInvalid)
	}
	return nil
}
