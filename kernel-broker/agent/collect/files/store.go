// SPDX-License-Identifier: Apache-2.0

package files

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/bpf"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/addup"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling/patterns"
)

// store has the files that left the kernel's table: the first ones by name,
// the rest as sums.
type store struct {
	most int
	kept map[fileKey]profiling.File
	rest patterns.Accumulator
	// more files and their traffic are in rest.
	more        uint64
	read, write profiling.Traffic
}

func newStore() *store {
	return &store{most: profiling.MostFiles, kept: map[fileKey]profiling.File{}}
}

func (s *store) add(key fileKey, f profiling.File) {
	before, known := s.kept[key]
	switch {
	case known:
		s.kept[key] = again(before, f)
	case len(s.kept) < s.most:
		s.kept[key] = f
	default:
		s.rest.Add(f)
		s.more++
		s.read, s.write = s.read.Plus(f.Read), s.write.Plus(f.Write)
	}
}

// again merges a file that left the table and returned.
func again(before, f profiling.File) profiling.File {
	if before.WholePath && !f.WholePath {
		f.Path, f.WholePath = before.Path, true
	}
	// What is no figure is the newer one's.
	return addup.Plus(f, before)
}

func (s *store) copy() *store {
	twin := *s
	twin.kept = maps.Clone(s.kept)
	twin.rest = s.rest.Clone()
	return &twin
}

// result of all files.
func (s *store) result() *profiling.IO {
	found := &profiling.IO{FilesLeftOut: s.more}
	all := s.rest.Clone()
	total := profiling.Total{Kind: profiling.RegularFiles, Read: s.read, Write: s.write}
	for _, f := range s.kept {
		found.Files = append(found.Files, f)
		all.Add(f)
		total.Read, total.Write = total.Read.Plus(f.Read), total.Write.Plus(f.Write)
	}
	found.Patterns = all.Patterns()
	found.AddTotal(total)
	return found
}

// table is the kernel's table of files: keys map to places, places to records; vacant lists free places.
type table struct{ places, files, vacant *ebpf.Map }

// placed is a file and where its record is.
type placed struct {
	key   fileKey
	place uint32
}

func (s *session) table() (table, error) {
	var t table
	var err error
	for name, to := range map[string]**ebpf.Map{"places": &t.places, "files": &t.files, "vacant": &t.vacant} {
		if *to, err = s.Programs.Map(name); err != nil {
			return table{}, err
		}
	}
	return t, nil
}

// all files that are in the table, and where their records are.
func (s *session) all() ([]placed, error) {
	places, err := bpf.Each[fileKey, uint32](s.Programs, "places")
	if err != nil {
		return nil, err
	}
	files := make([]placed, 0, len(places))
	for key, place := range places {
		files = append(files, placed{key, place})
	}
	return files, nil
}

// records hands over the records of files, by the order of their places.
func (t table) records(files []placed, hand func(placed, *fileRecord) error) error {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b placed) int { return cmp.Compare(a.place, b.place) })
	places := make([]uint32, len(files))
	for i, file := range files {
		places[i] = file.place
	}
	return bpf.In(t.files, places, func(i int, record *fileRecord) error { return hand(files[i], record) })
}

// vacate hands over the records of files that left, and makes room of them.
func (t table) vacate(files []placed, keep func(fileKey, *fileRecord)) error {
	return t.records(files, func(file placed, record *fileRecord) error {
		keep(file.key, record)
		if err := t.vacant.Update(nil, file.place, ebpf.UpdateAny); err != nil {
			return fmt.Errorf("map %s: %w", t.vacant, err)
		}
		return nil
	})
}
