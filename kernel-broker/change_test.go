// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import (
	"slices"
	"strings"
	"testing"
)

func TestStepBack(t *testing.T) {
	p := Profile{Name: "p"}
	for n := range uint32(5) {
		p.Versions = append(p.Versions, ProfileVersion{Kernel: Kernel{Profile: "p", Version: n + 1}})
	}
	for _, n := range []uint32{1, 3, 3, 2, 5} {
		p.SetDefault(n)
	}
	if !slices.Equal(p.Previous, []uint32{1, 3, 2}) || p.DefaultVersion != 5 {
		t.Fatalf("default %d, before %v", p.DefaultVersion, p.Previous)
	}
	any := func(ProfileVersion) bool { return true }
	if !p.StepBack(func(v ProfileVersion) bool { return v.Kernel.Version != 2 }) || p.DefaultVersion != 3 {
		t.Errorf("passing over 2: default %d", p.DefaultVersion)
	}
	if !p.StepBack(any) || p.DefaultVersion != 1 {
		t.Errorf("once more: default %d", p.DefaultVersion)
	}
	if p.StepBack(any) || p.DefaultVersion != 1 {
		t.Errorf("before the first version: default %d", p.DefaultVersion)
	}
	for n := range uint32(100) {
		p.SetDefault(n%5 + 1)
	}
	if len(p.Previous) != MaxPrevious {
		t.Errorf("%d steps are kept", len(p.Previous))
	}
}

func TestHistoryIsBounded(t *testing.T) {
	p := Profile{}
	for n := range uint32(1000) {
		p.Note(Change{Version: n})
	}
	if len(p.History) != maxHistory || p.History[maxHistory-1].Version != 999 {
		t.Errorf("%d changes, the last of version %d", len(p.History), p.History[len(p.History)-1].Version)
	}
}

func TestAuthor(t *testing.T) {
	if who, why := AuthorOf(t.Context()); who != "kernel-broker" || why != "" {
		t.Errorf("no author: %q, %q", who, why)
	}
	who, why := AuthorOf(WithAuthor(t.Context(), "alice\x1b[31m", "line\n"+strings.Repeat("x", 500)))
	if who != "alice [31m" || len(why) != MaxReason || strings.Contains(why, "\n") {
		t.Errorf("%q, %q", who, why)
	}
}

// A text that is one line stays as it is, wherever the first was cut: records are
// refused whose reason is none.
func TestOneLineStays(t *testing.T) {
	for length := range 2 * MaxReason {
		text := strings.Repeat("x", length) + " and more of it"
		once := OneLine(text)
		if again := OneLine(once); again != once || len(once) > MaxReason {
			t.Errorf("%q became %q", once, again)
		}
	}
}
