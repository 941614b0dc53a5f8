// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// ownChain names the chain in a folder itself, beside those in the folders below it.
const ownChain = "."

// Chains names the chains of a folder: one of each broker, in a folder below it, and the one of a broker that is alone, in the
// folder itself.
func Chains(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	names := []string{ownChain}
	for _, entry := range entries {
		if entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	var chains []string
	for _, name := range names {
		files, err := logFiles(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrPermission) {
			return nil, err
		}
		if len(files) > 0 {
			chains = append(chains, name)
		}
	}
	return chains, nil
}

// headReads is how often a head is read until two readings are the same: its writer may be at it.
const headReads = 8

// steadyHead reads the head of a chain that another process may write.
func steadyHead(dir string) (h *Head, err error) {
	var before *Head
	for range headReads {
		if h, err = readHead(dir); err == nil && (h == nil || before != nil && *before == *h) {
			return h, nil
		}
		before = h
	}
	return nil, cmp.Or(err, fmt.Errorf("audit log %q: its head does not rest", dir))
}

// OnDisk is the head of this chain as its folder has it.
func (l *Log) OnDisk() (*Head, error) { return steadyHead(l.o.Dir) }

// Witness records the heads of other chains, given by their names and texts, and those of the folder that this one's is in: whoever
// writes such a chain anew has to write this one anew, too.
func (l *Log) Witness(others map[string]string) error {
	dir := filepath.Dir(l.o.Dir)
	chains, err := Chains(dir)
	if err != nil {
		return err
	}
	heads := map[string]*Head{}
	look := func(name string, head *Head, err error) {
		switch {
		case name == filepath.Base(l.o.Dir):
		case err != nil:
			l.o.Log.Warn("audit log: another broker's chain is not witnessed", "chain", name, "error", err)
		case head != nil && head.Seq > 0:
			heads[name] = head
		}
	}
	for name, text := range others {
		head, err := ParseHead(text)
		look(name, &head, err)
	}
	for _, name := range chains {
		head, err := steadyHead(filepath.Join(dir, name))
		look(name, head, err)
	}
	for _, name := range slices.Sorted(maps.Keys(heads)) {
		if _, err := l.Append(Entry{Kind: KindWitnessed, Object: name, Stated: heads[name].String()}, true); err != nil {
			return err
		}
	}
	return nil
}

// witness is what one chain says of another.
type witness struct {
	by, of string
	record uint64 // that says it
	head   Head
}

// VerifyAll verifies all chains of a folder, and what they say of each other.
func VerifyAll(dir string) (map[string]Report, error) {
	names, err := Chains(dir)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("audit log %q: there is no audit-*.log in it, nor in a folder below it", dir)
	}
	reports, said := map[string]Report{}, map[string][]witness{}
	for _, name := range names {
		path := filepath.Join(dir, name)
		if reports[name], err = Verify(Check{Path: path}); err != nil {
			return nil, err
		}
		if err := witnesses(path, name, said); err != nil {
			return nil, err
		}
	}
	for name, list := range said {
		report, is := reports[name]
		if !is {
			by := reports[list[0].by]
			by.Problems = append(by.Problems, Problem{What: fmt.Sprintf("record %d has seen the chain %q, which is gone", list[0].record, name)})
			reports[list[0].by] = by
			continue
		}
		if err := confirm(filepath.Join(dir, name), list, &report); err != nil {
			return nil, err
		}
		reports[name] = report
	}
	return reports, nil
}

// witnesses collects what a chain says of others, by their names.
func witnesses(path, name string, said map[string][]witness) error {
	files, err := logFiles(path)
	if err != nil {
		return err
	}
	for _, file := range files {
		err := scan(file, func(_ []byte, _ bool, r *record) {
			if r == nil || r.Kind != KindWitnessed {
				return
			}
			if head, err := ParseHead(r.Stated); err == nil {
				said[r.Object] = append(said[r.Object], witness{by: name, of: r.Object, record: r.Seq, head: head})
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// confirm looks for the records that others have seen in a chain.
func confirm(path string, list []witness, report *Report) error {
	files, err := logFiles(path)
	if err != nil {
		return err
	}
	wanted := map[uint64]bool{}
	for _, w := range list {
		wanted[w.head.Seq] = true
	}
	have := map[Head]bool{}
	for _, file := range files {
		if err := scan(file, func(line []byte, _ bool, r *record) {
			if r != nil && wanted[r.Seq] {
				have[Head{Seq: r.Seq, Digest: digest(line)}] = true
			}
		}); err != nil {
			return err
		}
	}
	list = slices.DeleteFunc(list, func(w witness) bool { return have[w.head] || w.head.Seq < report.First })
	for _, w := range list {
		report.Problems = append(report.Problems, Problem{
			What: fmt.Sprintf("record %d with digest %.12s... is not in it, and record %d of the chain %q has seen it on disk", w.head.Seq, w.head.Digest, w.record, w.by)})
	}
	return nil
}
