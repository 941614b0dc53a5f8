// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/audit"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/munge"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/history"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/plan"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/power"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdserver"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdstore"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/strictyaml"
)

// config is broker.yaml.
type config struct {
	Cluster string `yaml:"cluster"`
	DataDir string `yaml:"data_dir"`
	// StoreKeyFile has the key that seals the secrets in the store.
	StoreKeyFile string `yaml:"store_key_file"`
	Socket       string `yaml:"socket"`
	Listen       string `yaml:"listen"`
	Snapshot     string `yaml:"snapshot"`
	LogLevel     string `yaml:"log_level"`
	// PprofSocket is where the broker shows what it does itself; empty: nowhere.
	PprofSocket string `yaml:"pprof_socket"`
	// LogFormat is text or json.
	LogFormat string `yaml:"log_format"`

	TLS tlsConfig `yaml:"tls"`

	Etcd etcdConfig `yaml:"etcd"`

	Slurm struct {
		BinDir string `yaml:"bin_dir"`
		Conf   string `yaml:"conf"`
		User   string `yaml:"user"`
		// Controllers are addresses of hosts with a backup slurmctld.
		Controllers []string      `yaml:"controllers"`
		Limit       time.Duration `yaml:"limit"`
		PollBusy    time.Duration `yaml:"poll_busy"`
		PollIdle    time.Duration `yaml:"poll_idle"`
		// ActiveFeatures shows the kernel of each node in sinfo.
		ActiveFeatures bool `yaml:"active_features"`
	} `yaml:"slurm"`

	Munge struct {
		Socket string `yaml:"socket"`
	} `yaml:"munge"`
	Policy string `yaml:"policy"`
	Audit  struct {
		Dir          string `yaml:"dir"`
		MaxFileBytes uint64 `yaml:"max_file_bytes"`
	} `yaml:"audit"`

	Events struct {
		Keep     time.Duration `yaml:"keep"`
		MaxBytes int64         `yaml:"max_bytes"`
	} `yaml:"events"`

	// Peers are the other brokers of the cluster.
	Peers peersConfig `yaml:"peers"`

	// Metrics are figures for Prometheus; an empty address serves none.
	Metrics struct {
		Listen string `yaml:"listen"`
	} `yaml:"metrics"`

	// Tracing sends a trace of each switch to a collector; without an address to none.
	Tracing struct {
		OTLP string `yaml:"otlp"`
	} `yaml:"tracing"`

	Administrators   []string `yaml:"administrators"`
	PrivilegedAgents bool     `yaml:"privileged_agents"`
	MaxArtifactBytes uint64   `yaml:"max_artifact_bytes"`
	// TrustList judges signatures at registration, as the nodes will.
	TrustList string `yaml:"trust_list"`

	Artifacts struct {
		MaxBytes   uint64        `yaml:"max_bytes"`
		MaxUploads int           `yaml:"max_uploads"`
		Grace      time.Duration `yaml:"grace"`
		RetiredFor time.Duration `yaml:"retired_for"`
	} `yaml:"artifacts"`

	Limits limitsConfig `yaml:"limits"`

	Switch struct {
		AtOnce          int    `yaml:"at_once"`
		ReturnRuleAfter uint32 `yaml:"return_rule_after"`
		plan.Config     `yaml:",inline"`
	} `yaml:"switch"`

	QuarantineAfter uint32   `yaml:"quarantine_after"`
	KeepJobs        int      `yaml:"keep_jobs"`
	ResetCommand    []string `yaml:"reset_command"`

	Runs runsConfig `yaml:"runs"`

	// path and digest of the file; empty without one.
	path, digest string
}

// defaults is the configuration of a broker that was told nothing.
func defaults() config {
	var c config
	c.Cluster = "cluster"
	c.DataDir = "/var/lib/kernel-broker"
	c.Socket = "/run/kernel-broker/broker.sock"
	c.Listen = ":7440"
	c.Snapshot = "/var/lib/kernel-broker/catalog.snapshot"
	c.LogLevel, c.LogFormat = "info", logText
	c.TLS.Mode, c.TLS.Lifetime = tlsOwn, 30*24*time.Hour
	c.Etcd.Prefix, c.Etcd.QuotaBytes = etcdstore.DefaultPrefix, etcdserver.DefaultQuota
	c.Peers.Listen = ":7442"
	c.Slurm.BinDir = "/usr/bin"
	c.Slurm.User = "slurm"
	c.Slurm.Limit = 15 * time.Second
	c.Slurm.PollBusy = 250 * time.Millisecond
	c.Slurm.PollIdle = 2 * time.Second
	c.Slurm.ActiveFeatures = true
	c.Munge.Socket = munge.DefaultSocket
	c.Policy = defaultPolicy
	c.Audit.MaxFileBytes = audit.DefaultMaxBytes
	c.Events.Keep, c.Events.MaxBytes = history.DefaultKeep, history.DefaultBytes
	c.MaxArtifactBytes = 1 << 30
	c.Artifacts.MaxBytes = 64 << 30
	c.Artifacts.MaxUploads = 8
	c.Artifacts.Grace = 24 * time.Hour
	c.Artifacts.RetiredFor = 30 * 24 * time.Hour
	c.Limits.Limits = server.DefaultLimits()
	c.Switch.AtOnce = 256
	c.Switch.ReturnRuleAfter = 3
	c.Switch.Config = plan.Defaults()
	c.QuarantineAfter = 2
	c.KeepJobs = 10000
	c.Runs = defaultRuns()
	return c
}

// plan returns the limits for decisions.
func (c config) plan() plan.Config {
	p := c.Switch.Config
	p.ActiveFeatures = c.Slurm.ActiveFeatures
	p.CanReset, p.RunDeliverLimit, p.RunRequestLimit = len(c.ResetCommand) > 0, c.Runs.DeliverLimit, c.Runs.RequestLimit
	p.RunsOfUser = c.Runs.OfUser
	return p
}

// load reads a configuration over the defaults. An unknown key is an error that
// names its line.
func load(path string) (config, error) {
	c := defaults()
	data, err := os.ReadFile(path)
	if err != nil {
		return c, fmt.Errorf("configuration: %w", err)
	}
	if err := strictyaml.Decode(path, data, &c); err != nil && !errors.Is(err, io.EOF) {
		return c, fmt.Errorf("configuration: %w", err)
	}
	c.path, c.digest = path, digest.Of(data)
	c.Limits.takeFormer()
	if err := c.validate(); err != nil {
		return c, fmt.Errorf("configuration: %s: %w", path, err)
	}
	return c, nil
}

func (c config) validate() error {
	for name, d := range map[string]time.Duration{
		"slurm.limit": c.Slurm.Limit, "slurm.poll_busy": c.Slurm.PollBusy, "slurm.poll_idle": c.Slurm.PollIdle,
		"switch.limit": c.Switch.SwitchLimit, "switch.load_limit": c.Switch.LoadLimit, "switch.agent_limit": c.Switch.AgentLimit,
		"switch.stock_timeout": c.Switch.StockTimeout, "switch.register_retry": c.Switch.RegisterRetry,
		"switch.keep_limit": c.Switch.KeepLimit, "switch.reset_grace": c.Switch.ResetGrace, "switch.reboot_timeout": c.Switch.RebootTimeout,
	} {
		if d < 10*time.Millisecond {
			return fmt.Errorf("%s: %v is too short", name, d)
		}
	}
	for name, value := range map[string]string{"cluster": c.Cluster, "data_dir": c.DataDir, "socket": c.Socket,
		"listen": c.Listen, "slurm.bin_dir": c.Slurm.BinDir, "slurm.user": c.Slurm.User} {
		if value == "" {
			return fmt.Errorf("%s: is empty", name)
		}
	}
	if err := new(slog.Level).UnmarshalText([]byte(c.LogLevel)); err != nil {
		return fmt.Errorf("log_level: %w", err)
	}
	if c.PprofSocket != "" && !filepath.IsAbs(c.PprofSocket) || c.PprofSocket == c.Socket {
		return fmt.Errorf("pprof_socket: %q is no absolute path of its own", c.PprofSocket)
	}
	if c.LogFormat != logText && c.LogFormat != logJSON {
		return fmt.Errorf("log_format: %q is neither %s nor %s", c.LogFormat, logText, logJSON)
	}
	if err := c.validateMetrics(); err != nil {
		return err
	}
	if len(c.ResetCommand) > 0 {
		if _, err := power.New(c.ResetCommand); err != nil {
			return fmt.Errorf("reset_command: %w", err)
		}
	}
	if c.Switch.RegisterDelay < 0 {
		return fmt.Errorf("switch.register_delay: %v is negative", c.Switch.RegisterDelay)
	}
	if err := c.validateTLS(); err != nil {
		return err
	}
	if _, err := c.controllers(); err != nil {
		return err
	}
	if err := errors.Join(c.Etcd.validate(c.Cluster), c.Peers.validate()); err != nil {
		return err
	}
	if n := c.Audit.MaxFileBytes; n < 1<<20 || n > 1<<40 {
		return fmt.Errorf("audit.max_file_bytes: %d is not within 1 MiB to 1 TiB", n)
	}
	if c.Events.Keep < time.Hour {
		return fmt.Errorf("events.keep: %v is less than an hour", c.Events.Keep)
	}
	if n := c.Events.MaxBytes; n < 1<<20 || n > c.Etcd.QuotaBytes/4 {
		return fmt.Errorf("events.max_bytes: %d is not within 1 MiB to a quarter of etcd.quota_bytes (%d)", n, c.Etcd.QuotaBytes)
	}
	if c.MaxArtifactBytes == 0 {
		return errors.New("max_artifact_bytes must be at least 1")
	}
	if err := errors.Join(c.validateArtifacts(), c.Runs.validate()); err != nil {
		return err
	}
	if err := c.Limits.Validate(); err != nil {
		return fmt.Errorf("limits: %w", err)
	}
	if c.QuarantineAfter == 0 || c.Switch.StockAttempts == 0 || c.Switch.AtOnce < 1 || c.KeepJobs < 1 {
		return errors.New("quarantine_after, switch.stock_attempts, switch.at_once and keep_jobs must be at least 1")
	}
	return nil
}

// controllers are where Slurm's hooks call from beside this host.
func (c config) controllers() ([]netip.Prefix, error) {
	networks := make([]netip.Prefix, len(c.Slurm.Controllers))
	for i, text := range c.Slurm.Controllers {
		var err error
		if networks[i], err = authz.ParseNetwork(text); err != nil {
			return nil, fmt.Errorf("slurm.controllers: %w", err)
		}
	}
	if len(networks) > 0 && c.Munge.Socket == "" {
		return nil, errors.New("slurm.controllers: munge.socket is empty: MUNGE proves who calls from there")
	}
	return networks, nil
}

func (c config) validateArtifacts() error {
	a := c.Artifacts
	switch {
	case a.MaxBytes > math.MaxInt64 || a.MaxBytes != 0 && a.MaxBytes < c.MaxArtifactBytes:
		return fmt.Errorf("artifacts.max_bytes: %d is less than max_artifact_bytes, or too large; 0 is no limit", a.MaxBytes)
	case c.MaxArtifactBytes > math.MaxInt64:
		return fmt.Errorf("max_artifact_bytes: %d is too large", c.MaxArtifactBytes)
	case a.MaxUploads < 1:
		return errors.New("artifacts.max_uploads must be at least 1")
	case a.Grace < time.Hour:
		// Between an upload and its registration lies a person.
		return fmt.Errorf("artifacts.grace: %v is less than an hour", a.Grace)
	case a.RetiredFor < 0:
		return fmt.Errorf("artifacts.retired_for: %v is negative", a.RetiredFor)
	case c.TrustList != "" && c.TrustList != noTrustList && !filepath.IsAbs(c.TrustList):
		return fmt.Errorf("trust_list: %q is neither an absolute path nor %s", c.TrustList, noTrustList)
	case c.StoreKeyFile != "" && !filepath.IsAbs(c.StoreKeyFile):
		return fmt.Errorf("store_key_file: %q is not an absolute path", c.StoreKeyFile)
	}
	return nil
}
