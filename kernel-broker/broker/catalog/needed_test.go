// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"slices"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

func testDigest(c string) string { return "sha256:" + strings.Repeat(c, 64) }

func TestNeededArtifacts(t *testing.T) {
	now := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	version := func(n uint32, c string, retired time.Duration) kb.ProfileVersion {
		v := kb.ProfileVersion{Kernel: kb.Kernel{Profile: "p", Version: n, ImageDigest: testDigest(c)}}
		if retired > 0 {
			v.Retired = &kb.Retirement{Since: now.Add(-retired)}
		}
		return v
	}
	old := version(1, "1", 48*time.Hour)
	old.Documents = []kb.Document{{Name: "provenance", Digest: testDigest("d")}}
	old.Kernel.InitrdDigest, old.Kernel.ModulesDigest = testDigest("e"), testDigest("9")
	p := kb.Profile{Name: "p", Versions: []kb.ProfileVersion{
		old, version(2, "2", 48*time.Hour), version(3, "3", time.Hour), version(4, "4", 0),
	}}
	held := map[kb.Ref][]string{{Profile: "p", Version: 2}: {"node n1", "job 7"}}
	runs := map[string][]string{testDigest("3"): {"run 5"}, testDigest("f"): {"run 5", "run 6"}}
	needed, err := NeededArtifacts([]kb.Profile{p}, held, runs, now, 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for c, want := range map[string][]string{
		"1": nil, "e": nil, "9": nil, "d": {"document of p@1"}, // retired for long: only the record stays
		"2": {"job 7", "node n1"}, // but somebody still holds it
		"3": {"p@3", "run 5"},     // retired a moment ago
		"4": {"p@4"}, "f": {"run 5", "run 6"},
	} {
		if got := needed[testDigest(c)]; !slices.Equal(got, want) {
			t.Errorf("%s is needed by %v, want %v", c, got, want)
		}
	}
	p.Versions[0].Kernel.ImageDigest = "rubbish"
	held[kb.Ref{Profile: "p", Version: 1}] = []string{"job 1"}
	if _, err := NeededArtifacts([]kb.Profile{p}, held, nil, now, 24*time.Hour); err == nil {
		t.Error("a digest that cannot be read is passed over")
	}
	if _, err := NeededArtifacts(nil, nil, map[string][]string{"rubbish": {"run 5"}}, now, 24*time.Hour); err == nil {
		t.Error("a digest of a run that cannot be read is passed over")
	}
}
