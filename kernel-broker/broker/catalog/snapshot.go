// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

const (
	snapshotHeader = "kernel-broker-snapshot 1"
	snapshotEnd    = "end"
	available      = "available"
	quarantineWord = "quarantined"
)

// ErrTruncated is a snapshot without its last line: it counts as absent.
var ErrTruncated = errors.New("snapshot is truncated")

// Snapshot is the catalog for submit hosts: enough to recognise a typing error, too little to run anything.
type Snapshot struct {
	Generated time.Time
	Profiles  []SnapshotProfile
}

// SnapshotProfile is one line of a Snapshot.
type SnapshotProfile struct {
	Name           string
	DefaultVersion uint32
	Versions       []uint32
	// Quarantined: some version is quarantined, or the profile is restricted. A snapshot can only permit, so for such a
	// profile a submit host asks the broker. The file says "quarantined" for both, which every plugin understands.
	Quarantined bool
}

// NewSnapshot builds the snapshot of profiles; restricted may be nil.
func NewSnapshot(profiles []kb.Profile, restricted func(profile string) bool, now time.Time) Snapshot {
	s := Snapshot{Generated: now.UTC().Truncate(time.Second)}
	for _, p := range profiles {
		// Retired profiles are left out. A submit host asks the broker about unknown names, which answers with the
		// reason.
		if p.Retired() {
			continue
		}
		line := SnapshotProfile{Name: p.Name, DefaultVersion: p.DefaultVersion, Quarantined: restricted != nil && restricted(p.Name)}
		for _, v := range p.Versions {
			if v.Retired != nil {
				continue
			}
			line.Versions = append(line.Versions, v.Kernel.Version)
			line.Quarantined = line.Quarantined || v.Quarantine != nil
		}
		s.Profiles = append(s.Profiles, line)
	}
	return s
}

// String is the text of the snapshot file.
func (s Snapshot) String() string {
	return snapshotHeader + "\n" +
		"generated " + s.Generated.UTC().Format(time.RFC3339) + "\n" +
		s.body() + snapshotEnd + "\n"
}

// body is the part that changes only with the catalog.
func (s Snapshot) body() string {
	var text strings.Builder
	for _, p := range s.Profiles {
		versions := make([]string, len(p.Versions))
		for i, v := range p.Versions {
			versions[i] = strconv.FormatUint(uint64(v), 10)
		}
		state := available
		if p.Quarantined {
			state = quarantineWord
		}
		fmt.Fprintf(&text, "profile %s %d %s %s\n", p.Name, p.DefaultVersion, strings.Join(versions, ","), state)
	}
	return text.String()
}

// ParseSnapshot reads the text of a snapshot file. It is strict: String writes accepted text back byte for byte.
func ParseSnapshot(text string) (Snapshot, error) {
	body, ok := strings.CutSuffix(text, "\n"+snapshotEnd+"\n")
	if !ok {
		return Snapshot{}, ErrTruncated
	}
	lines := strings.Split(body, "\n")
	if lines[0] != snapshotHeader {
		return Snapshot{}, fmt.Errorf("snapshot line 1: %q is not %q: %w", lines[0], snapshotHeader, kb.ErrInvalid)
	}
	s := Snapshot{}
	seen := map[string]bool{}
	for i, line := range lines[1:] {
		err := s.addLine(i, line, seen)
		if err != nil {
			return Snapshot{}, fmt.Errorf("snapshot line %d: %w", i+2, err)
		}
	}
	if len(lines) < 2 {
		return Snapshot{}, fmt.Errorf("snapshot has no time: %w", kb.ErrInvalid)
	}
	return s, nil
}

func (s *Snapshot) addLine(index int, line string, seen map[string]bool) error {
	if index == 0 {
		at, err := time.Parse(time.RFC3339, strings.TrimPrefix(line, "generated "))
		if err != nil || "generated "+at.UTC().Format(time.RFC3339) != line {
			return fmt.Errorf("%q is not a time: %w", line, kb.ErrInvalid)
		}
		s.Generated = at.UTC()
		return nil
	}
	p, err := parseSnapshotProfile(line)
	if err != nil {
		return err
	}
	if seen[p.Name] {
		return fmt.Errorf("profile %q is given twice: %w", p.Name, kb.ErrInvalid)
	}
	seen[p.Name] = true
	s.Profiles = append(s.Profiles, p)
	return nil
}

func parseSnapshotProfile(line string) (SnapshotProfile, error) {
	fields := strings.Split(line, " ")
	if len(fields) != 5 || fields[0] != "profile" {
		return SnapshotProfile{}, fmt.Errorf("%q is not a profile line: %w", line, kb.ErrInvalid)
	}
	if fields[4] != available && fields[4] != quarantineWord {
		return SnapshotProfile{}, fmt.Errorf("state %q: %w", fields[4], kb.ErrInvalid)
	}
	p := SnapshotProfile{Name: fields[1], Quarantined: fields[4] == quarantineWord}
	ref, err := kb.ParseRef(fields[1] + "@" + fields[2])
	if err != nil {
		return SnapshotProfile{}, err
	}
	p.DefaultVersion = ref.Version
	has := false
	for _, text := range strings.Split(fields[3], ",") {
		ref, err := kb.ParseRef(fields[1] + "@" + text)
		if err != nil {
			return SnapshotProfile{}, err
		}
		if n := len(p.Versions); n > 0 && p.Versions[n-1] >= ref.Version {
			return SnapshotProfile{}, fmt.Errorf("profile %q: versions do not rise: %w", p.Name, kb.ErrInvalid)
		}
		p.Versions = append(p.Versions, ref.Version)
		has = has || ref.Version == p.DefaultVersion
	}
	if !has {
		return SnapshotProfile{}, fmt.Errorf("profile %q: no default version %d: %w", p.Name, p.DefaultVersion, kb.ErrInvalid)
	}
	return p, nil
}
