// SPDX-License-Identifier: Apache-2.0

package callcounts

import (
	"testing"

	"github.com/kernelbroker/kernelbroker/tests/support/bpftest"
)

func TestLayouts(t *testing.T) {
	bpftest.Check(t, wanted, map[string]bpftest.Layout{
		"edges": {Key: edge{}, Value: uint64(0)},
		"lost":  {Value: uint64(0)},
	})
}

func TestWatched(t *testing.T) {
	const names = "vfs_write\nrcu_note_context_switch\ndefault_idle\nirq_rcu_enter\narch_cpu_idle\next4_sync_fs [ext4]\n"
	if got, want := string(watched([]byte(names))), "vfs_write\nirq_rcu_enter\next4_sync_fs [ext4]\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
