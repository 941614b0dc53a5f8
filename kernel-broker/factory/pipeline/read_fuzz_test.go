// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
)

// FuzzReadBack is what a build reads back of its own steps and of the plan that a
// job of it was given: the same as was written, or an error that names the file.
func FuzzReadBack(f *testing.F) {
	f.Add([]byte(`{"samples":[{"workload":"w","metric":"kernel_instructions","unit":"x","kernel":"slim","exact":true,"values":[1,2.5e3],"size":3}],"checks":[],"mitigations":["a"]}`))
	f.Add([]byte(`{"name":"mitgcm","catalog":"/c","cache":"/x","jobs":2,"counters":[{"run":7,"node":"n1","build_id":"ab","path":"/p"}],"command":"","machine":"","builder":""}`))
	f.Add([]byte(`{"samples":null} {}`))
	f.Add([]byte(`{"values":[1e400]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		path := filepath.Join(dir, MeasuredFile)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		named := func(err error) {
			if !strings.Contains(err.Error(), path) {
				t.Errorf("%v does not name %q", err, path)
			}
		}
		measured, err := ReadMeasured(dir, Workload{})
		if err != nil {
			named(err)
		} else {
			again := filepath.Join(t.TempDir(), MeasuredFile)
			if err := atomicfile.WriteJSON(again, measured, 0o644); err != nil {
				t.Fatal(err)
			}
			if back, err := ReadMeasured(filepath.Dir(again), Workload{}); err != nil || !reflect.DeepEqual(back, measured) {
				t.Errorf("%+v came back as %+v, %v", measured, back, err)
			}
		}
		options, err := LoadOptions(path)
		if err != nil {
			named(err)
			return
		}
		saved := filepath.Join(dir, "options.json")
		if err := atomicfile.WriteJSON(saved, options, 0o644); err != nil {
			t.Fatal(err)
		}
		first, err := json.Marshal(options)
		if err != nil {
			t.Fatal(err)
		}
		back, err := LoadOptions(saved)
		if err != nil {
			t.Fatal(err)
		}
		if second, err := json.Marshal(back); err != nil || string(first) != string(second) {
			t.Errorf("%s came back as %s, %v", first, second, err)
		}
	})
}

// FuzzFaults: which kernel is to blame for a failed step comes in JSON from the
// process that met it. Every error is either a kernel's fault or stays an error.
func FuzzFaults(f *testing.F) {
	f.Add([]byte(`{"kernel":"/k/slim","stage":"boot","reason":"panic","console":"x"}`), 3)
	f.Add([]byte(`{"kernel":""}`), 1)
	f.Add([]byte(`null`), 0)
	f.Fuzz(func(t *testing.T, detail []byte, others int) {
		all := []error{&graph.StepError{Step: "boot", Detail: detail, Err: errors.New("failed")}}
		others &= 7
		for range others {
			all = append(all, errors.New("another"))
		}
		found, rest := faults(errors.Join(all...))
		left := len(parts(rest))
		if len(found)+left != len(all) || len(found) > 1 || left < others {
			t.Errorf("%q: %d faults and %d errors of %d", detail, len(found), left, len(all))
		}
		for _, fault := range found {
			if fault.Kernel == "" || fault.Error() == "" {
				t.Errorf("nobody is to blame: %+v", fault)
			}
		}
	})
}
