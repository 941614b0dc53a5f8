// SPDX-License-Identifier: Apache-2.0

// Package client connects programs on the controller's side to the broker: their common settings
// (/etc/kernel-broker/client.yaml) and the connection.
//
// kernelctl and the Slurm hooks thereby agree on the broker's address. Every setting has a default, so a usual
// installation needs no file.
package client

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/strictyaml"
)

// DefaultPath of the settings.
const DefaultPath = "/etc/kernel-broker/client.yaml"

// Config is the settings. DefaultConfig has their defaults, and client.yaml in
// this folder explains each.
type Config struct {
	Broker    string `yaml:"broker"`
	Trust     Trust  `yaml:",inline"`
	Munge     string `yaml:"munge"`
	Scontrol  string `yaml:"scontrol"`
	SlurmConf string `yaml:"slurm_conf"`
	StateDir  string `yaml:"state_dir"`
	LogFile   string `yaml:"log_file"`
	// RebootProgram is the site's own, for nodes without an agent; empty for none.
	RebootProgram string        `yaml:"reboot_program"`
	BrokerWait    time.Duration `yaml:"broker_wait"`
	PrologLimit   time.Duration `yaml:"prolog_limit"`
	HoldAfter     int           `yaml:"hold_after"`
	// ProfilingWait limits how long a job without a profile waits for its nodes to get ready for a profiling run.
	ProfilingWait time.Duration `yaml:"profiling_wait"`
}

// DefaultConfig returns the settings without a file.
func DefaultConfig() Config {
	return Config{
		Broker:        "unix:///run/kernel-broker/broker.sock",
		Trust:         Trust{CA: "/etc/kernel-broker/ca.pem"},
		Munge:         "/run/munge/munge.socket.2",
		Scontrol:      "/usr/bin/scontrol",
		StateDir:      "/var/lib/kernel-broker/hook",
		BrokerWait:    30 * time.Second,
		PrologLimit:   700 * time.Second,
		HoldAfter:     3,
		ProfilingWait: 12 * time.Second,
	}
}

// LoadConfig reads path. Only at DefaultPath a missing file counts as empty.
func LoadConfig(path string) (Config, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && path == DefaultPath {
		return DefaultConfig(), nil
	}
	if err != nil {
		return Config{}, fmt.Errorf("settings: %w", err)
	}
	return ParseConfig(path, text)
}

// ParseConfig reads the text of a settings file over the defaults; name is for errors.
func ParseConfig(name string, text []byte) (Config, error) {
	if !utf8.Valid(text) {
		return Config{}, fmt.Errorf("%s: not UTF-8: %w", name, kb.ErrInvalid)
	}
	c := DefaultConfig()
	if err := strictyaml.Decode(name, text, &c); err != nil && !errors.Is(err, io.EOF) {
		return Config{}, fmt.Errorf("%w: %w", err, kb.ErrInvalid)
	}
	if err := c.validate(); err != nil {
		return Config{}, fmt.Errorf("%s: %w", name, err)
	}
	return c, nil
}

// Proof returns dial options that authenticate calls to an address; none on the broker's host, where the socket
// suffices. encoder creates an encoder for a munged's socket.
func (c Config) Proof(address string, encoder func(socket string) Encoder) []grpc.DialOption {
	target, err := Target(address)
	if err != nil || strings.HasPrefix(target, "unix:") || c.Munge == "" || encoder == nil {
		return nil
	}
	return Prove(encoder(c.Munge), cmp.Or(c.Trust.Cluster, defaultCluster))
}

// defaultCluster is broker.yaml's default cluster name.
const defaultCluster = "cluster"

// maxProfilingWait limits the delay of plain jobs by profiling.
const maxProfilingWait = 10 * time.Minute

// maxHoldAfter limits how many failed runs of a job precede a hold.
const maxHoldAfter = 100

func (c Config) validate() error {
	var wrong []error
	refuse := func(bad bool, key string, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Errorf("%s: %s: %w", key, fmt.Sprintf(format, args...), kb.ErrInvalid))
		}
	}
	// The hooks run without a PATH and from the root folder.
	for key, path := range map[string]string{"scontrol": c.Scontrol, "state_dir": c.StateDir} {
		refuse(!filepath.IsAbs(path), key, "%q is not an absolute path", path)
	}
	for key, path := range map[string]string{"slurm_conf": c.SlurmConf, "log_file": c.LogFile, "reboot_program": c.RebootProgram, "ca": c.Trust.CA} {
		refuse(path != "" && !filepath.IsAbs(path), key, "%q is not an absolute path", path)
	}
	_, err := Target(c.Broker)
	refuse(err != nil, "broker", "%v", err)
	refuse(c.BrokerWait < 0 || c.BrokerWait > c.PrologLimit, "broker_wait", "%v is not within 0s and prolog_limit (%v)", c.BrokerWait, c.PrologLimit)
	refuse(c.PrologLimit < time.Second || c.PrologLimit > 24*time.Hour, "prolog_limit", "%v is not within 1s to 24h", c.PrologLimit)
	refuse(c.ProfilingWait < time.Second || c.ProfilingWait > maxProfilingWait, "profiling_wait", "%v is not within 1s to %v", c.ProfilingWait, maxProfilingWait)
	refuse(c.HoldAfter < 1 || c.HoldAfter > maxHoldAfter, "hold_after", "%d is not within 1 to %d", c.HoldAfter, maxHoldAfter)
	return errors.Join(wrong...)
}

// fallbackKeys are what a hook needs to hold a job.
var fallbackKeys = []string{"scontrol", "slurm_conf", "state_dir", "log_file", "hold_after"}

// FallbackConfig returns settings with which a hook can hold a job when the file at path is invalid: the defaults, with its
// readable paths of Slurm, the log and the hook's own files.
func FallbackConfig(path string) Config {
	c := DefaultConfig()
	text, _ := os.ReadFile(path) // without it these are the defaults
	for line := range strings.Lines(string(text)) {
		key, _, _ := strings.Cut(line, ":")
		read := c
		if slices.Contains(fallbackKeys, key) && strictyaml.Decode(path, []byte(line), &read) == nil && read.validate() == nil {
			c = read
		}
	}
	return c
}
