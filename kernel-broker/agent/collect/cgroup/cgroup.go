// SPDX-License-Identifier: Apache-2.0

// Package cgroup reads a job's cgroup: its identity for BPF programs, its CPU time, and whether processes are left in
// it.
//
// Only the unified hierarchy (version 2) has identities that BPF programs can compare. Other directories are refused
// with a remedy.
package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Root of the hierarchy has this inode number, in whatever namespace.
const rootID = 1

// ErrKind is a folder that is no cgroup of version 2.
var ErrKind = errors.New("is no cgroup of version 2")

// ErrNamespace: the process cannot determine the depth of its cgroups.
var ErrNamespace = errors.New("in a cgroup namespace: the agent must run in the host's")

// Group is one cgroup. Slurm may remove it and make another of its name for the job's next step, of which BPF programs
// count nothing: that one is not this group.
type Group struct {
	Path string
	// ID and Level are what BPF programs compare. An ID of 0 stands for whichever group has the path.
	ID    uint64
	Level uint32
}

// Open opens a directory of the hierarchy.
func Open(path string) (*Group, error) {
	path = filepath.Clean(path)
	id, err := identify(path)
	if err != nil {
		return nil, err
	}
	group := &Group{Path: path, ID: id}
	for dir := path; ; group.Level++ {
		if id, err = identify(dir); err != nil {
			return nil, fmt.Errorf("cgroup %q: %w", path, ErrNamespace)
		}
		if id == rootID {
			return group, nil
		}
		dir = filepath.Dir(dir)
	}
}

func identify(path string) (uint64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return 0, fmt.Errorf("cgroup %q: %w", path, err)
	}
	if fs.Type != unix.CGROUP2_SUPER_MAGIC {
		return 0, fmt.Errorf("cgroup %q: %w", path, ErrKind)
	}
	return inode(path)
}

func inode(path string) (uint64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, fmt.Errorf("cgroup %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("cgroup %q: no inode number", path)
	}
	return stat.Ino, nil
}

// Populated reports whether a process is in the group or below it. A removed group has none.
func (g *Group) Populated() (bool, error) {
	values, err := g.read("cgroup.events")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return false, nil
	}
	return values["populated"] != 0, err
}

// Gone reports whether the group was removed.
func (g *Group) Gone() bool { return errors.Is(g.there(), os.ErrNotExist) }

// there is os.ErrNotExist if the group was removed, also where another one has its path by now.
func (g *Group) there() error {
	id, err := inode(g.Path)
	if err == nil && g.ID != 0 && id != g.ID {
		return fmt.Errorf("cgroup %q is another one by now: %w", g.Path, os.ErrNotExist)
	}
	return err
}

// CPUTime is the group's use since its creation.
type CPUTime struct{ AllNS, UserNS, SystemNS uint64 }

func (g *Group) CPUTime() (CPUTime, error) {
	values, err := g.read("cpu.stat")
	if err != nil {
		return CPUTime{}, err
	}
	const micro = 1000
	return CPUTime{
		AllNS: values["usage_usec"] * micro, UserNS: values["user_usec"] * micro, SystemNS: values["system_usec"] * micro,
	}, nil
}

// Less is the time between two readings.
func (t CPUTime) Less(earlier CPUTime) CPUTime {
	return CPUTime{
		less(t.AllNS, earlier.AllNS), less(t.UserNS, earlier.UserNS), less(t.SystemNS, earlier.SystemNS),
	}
}

func less(a, b uint64) uint64 {
	if b > a {
		return 0
	}
	return a - b
}

func (g *Group) read(name string) (map[string]uint64, error) {
	text, err := os.ReadFile(filepath.Join(g.Path, name))
	if err != nil {
		return nil, fmt.Errorf("cgroup %w", err)
	}
	// Asked last: what was read is this group's if it is still there.
	if err := g.there(); err != nil {
		return nil, err
	}
	values, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("cgroup %q: %s: %w", g.Path, name, err)
	}
	return values, nil
}

var errLine = errors.New("not a name and a number")

// parse reads the kernel's flat keyed files.
func parse(text []byte) (map[string]uint64, error) {
	values := map[string]uint64{}
	for line := range strings.Lines(string(text)) {
		name, number, found := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		value, err := strconv.ParseUint(strings.TrimSpace(number), 10, 64)
		if !found || name == "" || err != nil {
			return nil, fmt.Errorf("line %q: %w", line, errLine)
		}
		values[name] = value
	}
	return values, nil
}
