package files

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/collect/bpf"
)

// table is the kernel's table of files: a key has a place, a place a record, and
// places whose files left are vacant for others.
type table struct{ places, files, vacant *ebpf.Map }

// left is a file that left the table, and where its record is.
type left struct {
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

func (t table) all() (map[fileKey]uint32, error) { return bpf.Each[fileKey, uint32](t.places) }

func (t table) record(place uint32) (*fileRecord, error) {
	record := new(fileRecord)
	if err := t.files.Lookup(place, record); err != nil {
		return nil, fmt.Errorf("map %s: %w", t.files, err)
	}
	return record, nil
}

// vacate hands over the records of files that left, and makes room of them.
func (t table) vacate(all []left, keep func(fileKey, *fileRecord)) error {
	for _, file := range all {
		record, err := t.record(file.place)
		if err != nil {
			return err
		}
		keep(file.key, record)
		if err := t.vacant.Update(nil, file.place, ebpf.UpdateAny); err != nil {
			return fmt.Errorf("map %s: %w", t.vacant, err)
		}
	}
	return nil
}
