// SPDX-License-Identifier: Apache-2.0

package catalog

import (
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
