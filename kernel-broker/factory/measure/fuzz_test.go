// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/workload"
)

// FuzzReadCounts: the counts come from the emulator, which region they are of
// from the guest. They have to fit together.
func FuzzReadCounts(f *testing.F) {
	f.Add([]byte(two), 1, 2)
	f.Add([]byte(`{"format":3,"unended":0,"unbalanced":0,"lost":0,"regions":[]}`), 0, 0)
	f.Add([]byte(strings.Replace(two, "9000", "18446744073709551615", 1)), 1, 2)
	f.Add([]byte(strings.Replace(two, `"l1d_misses": 50, `, "", 1)), 1, 2)
	f.Add([]byte(`{"format":3,"unended":-1,"regions":[{"marker":1,"user":{},"kernel":{}},{"marker":2,"user":{},"kernel":{}}]} `), 1, 2)
	f.Add([]byte(`{"format":3,"unended":0,"unbalanced":0,"lost":0,"regions":null}{}`), 0, 0)
	f.Fuzz(func(t *testing.T, text []byte, first, second int) {
		said := []workload.Region{{Marker: first, Name: "a", Operations: 3}, {Marker: second, Name: "b", Operations: 4}}
		for n := range len(said) + 1 {
			got, err := parseCounts(text, said[:n])
			if err != nil {
				continue
			}
			if len(got) != n {
				t.Fatalf("%d regions for %d", len(got), n)
			}
			for i, region := range got {
				if region.Marker != said[i].Marker || region.Name != said[i].Name || region.Operations != said[i].Operations {
					t.Errorf("%+v is taken for %+v", region, said[i])
				}
			}
			again, err := json.Marshal(countsDocument{Format: countsFormat, Regions: got})
			if err != nil {
				t.Fatal(err)
			}
			if back, err := parseCounts(again, said[:n]); err != nil || len(got) > 0 && !reflect.DeepEqual(back, got) {
				t.Errorf("%+v came back as %+v, %v", got, back, err)
			}
		}
	})
}
