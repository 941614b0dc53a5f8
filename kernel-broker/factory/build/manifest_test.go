// SPDX-License-Identifier: Apache-2.0

package build

import (
	"strings"
	"testing"
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
