// SPDX-License-Identifier: Apache-2.0

package build

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pgo"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
)

// kernel.json may come from another host: it names no files of this one.
func TestManifestNamesWhatIsBesideIt(t *testing.T) {
	for text, wrong := range map[string]string{
		`{"format":1,"image":{"name":"bzImage"},"config":{"name":"config"},"system_map":{"name":"System.map"},"modules":"lib/modules"}`: "",
		`{"format":1,"image":{"name":"../other/bzImage"}}`: `image: "../other/bzImage"`,
		`{"format":1,"config":{"name":"/etc/shadow"}}`:     `config: "/etc/shadow"`,
		`{"format":1,"system_map":{"name":".."}}`:          `system_map: ".."`,
		`{"format":1,"image":{"name":"/"}}`:                `image: "/"`,
		`{"format":1,"modules":"../../lib/modules"}`:       "modules: ",
		`{"format":2}`: "this program reads 1",
	} {
		_, err := ParseManifest([]byte(text))
		if wrong == "" && err != nil || wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A kill in the middle of a write must leave the old content: a list that is half
// there stops each later build in the folder.
func TestJSONIsReplacedWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "list.json")
	write(t, path, "[1]\n")
	before := path + ".before"
	if err := os.Link(path, before); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.WriteJSON(path, []int{2}, 0o644); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(before); err != nil || string(text) != "[1]\n" {
		t.Errorf("the old file was written to: %q, %v", text, err)
	}
}

// What is excluded has no profile by decision; of many excluded objects the text does not show whether the compiler used the rest.
func TestFitsWithoutWhatIsExcluded(t *testing.T) {
	var missing []string
	var excluded []Exclusion
	for i := range 40 {
		object := fmt.Sprintf("fs/o%d.o", i)
		missing, excluded = append(missing, object), append(excluded, Exclusion{Object: object})
	}
	m := Manifest{Name: "k", Sections: &pgo.Sections{Text: 95, Unlikely: 5}, Profile: &Use{Objects: 500, Complaints: pgo.Complaints{Missing: missing}}}
	if err := m.Fits(pgo.Unprofiled); err == nil || !strings.Contains(err.Error(), "40 files have no profile") || !strings.Contains(err.Error(), "ignored the profile") {
		t.Errorf("not excluded: %v", err)
	}
	m.Profile.Excluded = excluded
	if err := m.Fits(pgo.Unprofiled); err == nil || strings.Contains(err.Error(), "no profile") || !strings.Contains(err.Error(), "ignored the profile") {
		t.Errorf("a few excluded: %v", err)
	}
	m.Flags = []string{"-fno-reorder-functions"}
	if err := m.Fits(pgo.Unprofiled); err != nil {
		t.Errorf("cold code is not set apart, as the recipe says: %v", err)
	}
	m.Flags, m.Profile.Objects = nil, 100
	if err := m.Fits(pgo.Unprofiled); err != nil {
		t.Errorf("many excluded: %v", err)
	}
}
