// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"path/filepath"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Profiling of jobs.
type Profiling struct {
	Dir string `yaml:"dir"`
	// Sockets may be empty.
	Sockets  string   `yaml:"sockets"`
	Cgroups  []string `yaml:"cgroups"`
	MaxBytes int      `yaml:"max_bytes"`
	// MaxRuns is how many jobs the node profiles at a time.
	MaxRuns int           `yaml:"max_runs"`
	Settle  time.Duration `yaml:"settle"`
	// OverheadPercent of a job's CPU time may be used by its collectors; 0 means no limit.
	OverheadPercent float64 `yaml:"overhead_percent"`
}

func (p Profiling) validate() error {
	paths := append([]string{p.Dir}, p.Cgroups...)
	if p.Sockets != "" {
		paths = append(paths, p.Sockets)
	}
	for _, path := range paths {
		if !filepath.IsAbs(path) {
			return fmt.Errorf("profiling: %q is not an absolute path: %w", path, kb.ErrInvalid)
		}
		if _, err := filepath.Match(path, ""); err != nil {
			return fmt.Errorf("profiling.cgroups: %q: %w: %w", path, kb.ErrInvalid, err)
		}
	}
	if p.MaxBytes < 1<<16 || p.MaxBytes > 1<<30 {
		return fmt.Errorf("profiling.max_bytes: %d is not within 64 KiB to 1 GiB: %w", p.MaxBytes, kb.ErrInvalid)
	}
	if p.MaxRuns < 1 {
		return fmt.Errorf("profiling.max_runs: %d is less than 1: %w", p.MaxRuns, kb.ErrInvalid)
	}
	// This form also rejects NaN.
	if bounded := p.OverheadPercent >= 0.1 && p.OverheadPercent <= 50; !bounded && p.OverheadPercent != 0 {
		return fmt.Errorf("profiling.overhead_percent: %v is neither within 0.1 to 50 nor 0, which is no bound: %w", p.OverheadPercent, kb.ErrInvalid)
	}
	if p.Settle < 0 || p.Settle > time.Minute {
		return fmt.Errorf("profiling.settle: %v is not within 0 to 1m, the limit of a load: %w", p.Settle, kb.ErrInvalid)
	}
	return nil
}
