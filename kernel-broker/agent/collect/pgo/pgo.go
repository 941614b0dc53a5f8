// SPDX-License-Identifier: Apache-2.0

// Package pgo collects the counters of an instrumented kernel (GCOV): it resets them when the application starts and
// copies them when it ends.
//
// Unlike other collectors it cannot tell jobs apart: the counters are the kernel's, so the job needs the node for
// itself. Copying a thousand files counts too; so it is done a second time from zero, and package pgo of the factory
// subtracts the second copy.
package pgo

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/bpf"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/cgroup"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// Root is where a counting kernel shows its counters.
const Root = "/sys/kernel/debug/gcov"

// The folders in the archive: all counters, and those of copying alone.
const (
	counters = "gcov"
	copying  = "gcov.copying"
)

// Collector of counters. BuildID is the running kernel's; an empty Root means the constant Root; Most limits the size of
// the archive, 0 means MostBytes.
type Collector struct {
	BuildID string
	Root    string
	Most    int64
}

// MostBytes of an archive. A whole kernel's counters are about 20 MB.
const MostBytes = 256 << 20

func (Collector) Name() profiling.Collector { return profiling.CollectPGO }

func (c Collector) root() string {
	if c.Root == "" {
		return Root
	}
	return c.Root
}

// Check reports whether the running kernel is instrumented.
func (c Collector) Check() error {
	if _, err := os.Stat(filepath.Join(c.root(), "reset")); err != nil {
		detail := "the running kernel has no counters"
		if !errors.Is(err, fs.ErrNotExist) {
			detail = err.Error()
		}
		return refuse(profiling.NoCounters, detail,
			"ask for the profile's instrumented kernel, and mount debugfs on /sys/kernel/debug")
	}
	return nil
}

func refuse(reason profiling.Reason, detail, remedy string) error {
	return &profiling.Unsupported{Collector: profiling.CollectPGO, Reason: reason, Detail: detail, Remedy: remedy}
}

// Start sets the counters to zero.
func (c Collector) Start(target collect.Target) (collect.Session, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	s := &session{root: c.root(), most: c.Most, target: target, buildID: c.BuildID}
	if s.most == 0 {
		s.most = MostBytes
	}
	if err := s.reset(); err != nil {
		return nil, refuse(profiling.BrokenStart, err.Error(), "")
	}
	s.began, s.known = s.used()
	return s, nil
}

type session struct {
	root    string
	most    int64
	target  collect.Target
	buildID string
	archive *profiling.Archive
	stopped bool
	// began is the job's CPU time at the start, if known.
	began cgroup.CPUTime
	known bool
}

func (s *session) used() (used cgroup.CPUTime, known bool) {
	if s.target.Cgroup == nil {
		return used, false
	}
	used, err := s.target.Cgroup.CPUTime()
	return used, err == nil
}

// idle: the job did nothing. A cgroup that is gone by now was the job's.
func (s *session) idle() bool {
	now, known := s.used()
	return s.known && known && now == s.began
}

func (s *session) reset() error {
	if err := os.WriteFile(filepath.Join(s.root, "reset"), []byte("1\n"), 0o200); err != nil {
		return fmt.Errorf("counters: %w", err)
	}
	return nil
}

// Missing has no parts.
func (*session) Missing() []bpf.Missing { return nil }

// Spent is zero: the counting is in the kernel's own code, and its cost is measured by comparison with another kernel.
func (*session) Spent() (bpf.Cost, error) { return bpf.Cost{}, nil }

// Stop copies the counters, unless they are of idle time: those of the job's last step are in the same place.
func (s *session) Stop() error {
	if s.stopped {
		return nil
	}
	s.stopped = true
	if s.idle() {
		return nil
	}
	name := "gcov-" + s.target.Node + ".tar.gz"
	packed, err := pack(filepath.Join(s.target.Folder, name), s.most, func(p *packer) error {
		if err := p.copy(s.root, counters); err != nil {
			return err
		}
		if err := s.reset(); err != nil {
			return err
		}
		return p.copy(s.root, copying)
	})
	if err != nil {
		return fmt.Errorf("counters: %w", err)
	}
	s.archive = &profiling.Archive{
		Node: s.target.Node, BuildID: s.buildID, Name: name, Files: packed.files, Bytes: packed.bytes,
	}
	return nil
}

// Read has a result only after Stop.
func (s *session) Read(result *profiling.Result) error {
	if s.archive != nil {
		result.PGO = &profiling.PGO{Archives: []profiling.Archive{*s.archive}}
	}
	return nil
}

// Close has nothing to release.
func (s *session) Close() error { return s.Stop() }

// ErrLarge: the archive would exceed its limit.
var ErrLarge = errors.New("the counters exceed the size limit")

type packed struct{ files, bytes uint64 }

type packer struct {
	out  *tar.Writer
	left int64
	packed
}

// pack puts an archive at its place when it is whole.
func pack(path string, most int64, fill func(*packer) error) (packed, error) {
	var done packed
	err := atomicfile.Fill(path, 0o600, func(file *os.File) error {
		zipped := gzip.NewWriter(file)
		p := &packer{out: tar.NewWriter(zipped), left: most}
		err := errors.Join(fill(p), p.out.Close(), zipped.Close())
		done = p.packed
		return err
	})
	return done, err
}

// copy adds all counters below root under a folder of that name. The size of a counter file is only known after reading
// it.
func (p *packer) copy(root, folder string) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || filepath.Ext(path) != ".gcda" {
			return err
		}
		file, err := os.Open(path) //nolint:gosec // G122: below debugfs, which root and the kernel alone write
		if err != nil {
			return err
		}
		defer file.Close()
		content, err := io.ReadAll(io.LimitReader(file, p.left+1))
		if err != nil {
			return fmt.Errorf("file %q: %w", path, err)
		}
		if p.left -= int64(len(content)); p.left < 0 {
			return ErrLarge
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		err = p.out.WriteHeader(&tar.Header{
			Name: filepath.Join(folder, name), Mode: 0o644, Size: int64(len(content)), Format: tar.FormatPAX,
		})
		if err != nil {
			return err
		}
		_, err = p.out.Write(content)
		p.files++
		p.bytes += uint64(len(content))
		return err
	})
}
