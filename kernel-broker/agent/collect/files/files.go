// SPDX-License-Identifier: Apache-2.0

// Package files is the collector of input and output: what the job did to each file, and in which patterns. The programs
// are in bpf/source/files.bpf.c.
//
// The kernel's table has room for 16,384 files. Long before it is full, idle files move into this process, which keeps
// the first 10,000 by name and the rest as sums of their pattern. So a job may have any number of files, and the totals
// stay right.
package files

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/bpf"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// Parts that a kernel may lack.
const (
	partVectors = "reads and writes of vectors"
	partCopies  = "copies in the kernel"
	partSeeks   = "seeks"
	partSyncs   = "syncs"
	partMaps    = "mappings"
	partOpens   = "whole paths and opens"
)

var wanted = bpf.Wanted{
	Collector: profiling.CollectIO,
	Object:    "files",
	Parts: map[string]string{
		"vector_readv": partVectors, "vector_writev": partVectors, "vector_preadv": partVectors, "vector_pwritev": partVectors,
		"vector_preadv2": partVectors, "vector_pwritev2": partVectors,
		"copy_sendfile": partCopies, "copy_copy_file_range": partCopies, "copy_splice": partCopies,
		"copy_ranges": partCopies,
		"file_sought": partSeeks, "file_synced": partSyncs, "file_synced_data": partSyncs, "file_mapped": partMaps, "file_opened": partOpens,
	},
	Instead: map[string]string{"copy_ranges": "copy_copy_file_range"},
}

// A file idle for this long may leave the kernel's table once the table is this full.
const (
	idle     = 3 // ticks
	fillMost = mostFiles / 2
)

// Collector of input and output. Its zero value is ready.
type Collector struct{}

func (Collector) Name() profiling.Collector { return profiling.CollectIO }

// Check reports whether the running kernel has what is needed.
func (Collector) Check() error { return wanted.Check() }

// Start attaches the programs.
func (Collector) Start(target collect.Target) (collect.Session, error) {
	nothing, err := os.Open(os.DevNull)
	if err != nil {
		return nil, &profiling.Unsupported{Collector: profiling.CollectIO, Reason: profiling.BrokenStart, Detail: err.Error()}
	}
	defer nothing.Close()
	// It reads nothing, but calls the traced function.
	gate := bpf.NewGate(func() { _, _ = unix.Read(int(nothing.Fd()), nil) })
	programs, err := bpf.Start(wanted, target.Cgroup, nil)
	if err != nil {
		return nil, err
	}
	s := &session{Programs: programs, node: target.Node, store: newStore(), tick: 1}
	s.toll = gate.Toll(programs, 1)
	return s, nil
}

type session struct {
	*bpf.Programs
	node  string
	store *store
	moved uint64
	tick  uint64
	toll  bpf.Toll
	// leaving are removed from the table, with records still to read.
	leaving []placed
	cleared uint32
}

func (s *session) Events() (uint64, error) {
	sum, err := bpf.Sum[cpuState](s.Programs, "cpus", 0)
	return sum.Events, err
}

// Toll of the way to the programs.
func (s *session) Toll() bpf.Toll { return s.toll }

// Tend moves idle files out of the kernel's table when it fills up. It is the programs' clock: they stamp files with its
// tick.
func (s *session) Tend() error {
	s.tick++
	if err := s.Programs.Set("tick", s.tick); err != nil {
		return err
	}
	t, err := s.table()
	if err != nil {
		return err
	}
	// A tick ago they left, so no program is at work on them any more.
	if err := t.vacate(s.leaving, s.keep); err != nil {
		return err
	}
	s.leaving = nil
	sums, err := s.overflow()
	if err != nil || sums.Made-s.moved < fillMost {
		return err
	}
	return s.clear(t)
}

// clear removes the keys of idle files from the table. Their records are read a tick later, when no program uses them
// any more.
func (s *session) clear(t table) error {
	all, err := s.all()
	if err != nil {
		return err
	}
	err = t.records(all, func(file placed, record *fileRecord) error {
		if record.Last+idle > s.tick {
			return nil
		}
		if err := t.places.Delete(file.key); err != nil {
			return fmt.Errorf("map %s: %w", t.places, err)
		}
		s.leaving = append(s.leaving, file)
		s.moved++
		return nil
	})
	s.cleared++ // also after an error: some keys are gone
	return errors.Join(err, s.Programs.Set("cleared", s.cleared))
}

func (s *session) keep(key fileKey, record *fileRecord) { s.store.add(key, record.file(key, s.node)) }

func (s *session) Read(result *profiling.Result) error {
	t, err := s.table()
	if err != nil {
		return err
	}
	all, err := s.all()
	if err != nil {
		return err
	}
	now := s.store.copy()
	// A removed file may have returned at another place.
	err = t.records(slices.Concat(s.leaving, all), func(file placed, record *fileRecord) error {
		now.add(file.key, record.file(file.key, s.node))
		return nil
	})
	if err != nil {
		return err
	}
	found := now.result()
	if err := s.others(found); err != nil {
		return err
	}
	sums, err := s.overflow()
	if err != nil {
		return err
	}
	found.Overflow = profiling.Total{Kind: profiling.RegularFiles}
	for way, to := range []*profiling.Traffic{&found.Overflow.Read, &found.Overflow.Write} {
		to.Calls, to.Bytes = sums.Traffic[way].Calls, sums.Traffic[way].Bytes
	}
	found.AddTotal(found.Overflow)
	found.Bound(profiling.MostFiles)
	result.IO = found
	return nil
}

// others adds non-regular files.
func (s *session) others(found *profiling.IO) error {
	for number := range uint32(types) {
		sum, err := bpf.Sum[typeRecord](s.Programs, "types", number)
		if err != nil {
			return err
		}
		if sum == (typeRecord{}) {
			continue
		}
		total := profiling.Total{Kind: profiling.InodeKind(int(number))}
		for way, to := range []*profiling.Traffic{&total.Read, &total.Write} {
			to.Calls, to.Bytes, to.Failed = sum.Traffic[way].Calls, sum.Traffic[way].Bytes, sum.Traffic[way].Failed
		}
		found.AddTotal(total)
	}
	return nil
}

func (s *session) overflow() (overflow, error) {
	return bpf.Sum[overflow](s.Programs, "overflows", 0)
}

// The layouts of bpf/source/files.h, which the tests compare.
const (
	sizes     = 32
	pathBytes = 256
	mostFiles = 16384
	types     = 16
	reading   = 0
	writing   = 1
)

type fileKey struct {
	Inode      uint64
	Device     uint32
	Generation uint32
}

type traffic struct {
	Calls, Bytes, Failed, Cut, Nothing, Small, Sequential, Next, Least, Most uint64
	Sizes                                                                    [sizes]uint64
}

type fileRecord struct {
	Traffic                                                 [2]traffic
	Opens, Syncs, Seeks, IdleSeeks, Maps, Size, Magic, Last uint64
	Flags, WholePath                                        uint32
	Path                                                    [pathBytes]byte
}

type typeTraffic struct{ Calls, Bytes, Failed uint64 }

type typeRecord struct{ Traffic [2]typeTraffic }

type overflow struct {
	Traffic     [2]struct{ Calls, Bytes uint64 }
	Opens, Made uint64
}

type cpuState struct {
	Events, File, Inode, During uint64
	Cleared, Place              uint32
}

func (t traffic) domain() profiling.Traffic {
	return profiling.Traffic{
		Calls: t.Calls, Bytes: t.Bytes, Failed: t.Failed, Nothing: t.Nothing, Cut: t.Cut, Small: t.Small,
		Sequential: t.Sequential, Least: t.Least, Most: t.Most, Sizes: profiling.Histogram(t.Sizes[:]).Trimmed(),
	}
}

func (r *fileRecord) file(key fileKey, node string) profiling.File {
	path, _, _ := bytes.Cut(r.Path[:], []byte{0})
	return profiling.File{
		Node: node, Path: string(bytes.ToValidUTF8(path, []byte("?"))), WholePath: r.WholePath != 0,
		FileSystem: fileSystem(r.Magic), Inode: key.Inode,
		Device: profiling.Device(key.Device), Size: r.Size, Opens: r.Opens, Read: r.Traffic[reading].domain(), Write: r.Traffic[writing].domain(),
		Syncs: r.Syncs, Seeks: r.Seeks, IdleSeeks: r.IdleSeeks, Maps: r.Maps,
	}
}

// systems maps magic numbers of file systems to names.
var systems = map[uint64]string{
	0x00c36400: "ceph",
	0x01021994: "tmpfs",
	0x01021997: "9p",
	0x0bd00bd0: "lustre",
	0x19830326: "beegfs",
	0x2fc12fc1: "zfs",
	0x47504653: "gpfs",
	0x53464846: "wekafs",
	0x58465342: "xfs",
	0x62656572: "sysfs",
	0x63677270: "cgroup2",
	0x64626720: "debugfs",
	0x65735546: "fuse",
	0x6969:     "nfs",
	0x73717368: "squashfs",
	0x794c7630: "overlay",
	0x858458f6: "ramfs",
	0x9123683e: "btrfs",
	0x958458f6: "hugetlbfs",
	0x9fa0:     "proc",
	0xef53:     "ext4",
	0xf2f52010: "f2fs",
}

func fileSystem(magic uint64) string {
	if known := systems[magic]; known != "" {
		return known
	}
	return fmt.Sprintf("%#x", magic)
}
