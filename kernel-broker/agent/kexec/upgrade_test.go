// SPDX-License-Identifier: Apache-2.0

package kexec

import (
	"os"
	"testing"
)

// The floors that an agent of commit 209bc79 remembered still hold.
func TestUpgradeFrom209bc79(t *testing.T) {
	text, err := os.ReadFile("../testdata/209bc79/floors.json")
	if err != nil {
		t.Fatal(err)
	}
	if m, err := parseMemory(text); err != nil || m.Floors["mitgcm"] != 3 || m.Newest.Unix() != 1795417200 {
		t.Errorf("%+v, %v", m, err)
	}
}
