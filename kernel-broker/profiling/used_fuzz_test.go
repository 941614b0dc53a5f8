// SPDX-License-Identifier: Apache-2.0

package profiling

import (
	"encoding/json"
	"slices"
	"testing"
)

// What a node says that a job used becomes what stays in a kernel.
func FuzzUsed(f *testing.F) {
	f.Add([]byte(`{"syscalls":{"calls":[{"name":"read","count":1},{"name":"read","count":2},{"name":"","count":1},{"name":"x","count":0}]},"callgraph":{"stacks":[{"frames":["vfs_read","bpf_prog_1","vfs_write"]},{"frames":[".part","0xffff","a.isra.0"]}]},"io":{"files":[{"file_system":"ext4"},{"file_system":"0x1"}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var r Result
		if json.Unmarshal(text, &r) != nil {
			return
		}
		used := r.Used()
		for what, list := range map[string][]string{"calls": used.Calls, "functions": used.Functions, "file systems": used.FileSystems} {
			if !slices.IsSorted(list) || len(slices.Compact(slices.Clone(list))) != len(list) {
				t.Errorf("%s %q are not in order", what, list)
			}
		}
		if slices.Contains(used.Functions, "") || slices.Contains(used.FileSystems, "") || used.Any() != (len(used.Calls)+len(used.Functions) > 0) {
			t.Errorf("%+v", used)
		}
	})
}
