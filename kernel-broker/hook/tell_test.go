// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"slices"
	"strings"
	"testing"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// An srun or salloc hears which step its nodes are at, each change once; the count of nodes not at every node.
func TestWhoWaitsHearsOfEachStep(t *testing.T) {
	t.Parallel()
	said := []string{"loading, 0 of 2 nodes ready", "loading, 0 of 2 nodes ready", "booting, 0 of 2 nodes ready, usually 14 s", "booting, 1 of 2 nodes ready, usually 14 s"}
	for name, c := range map[string]struct {
		last api.AllocationPhase
		text string
		want []string
	}{
		"ready":  {isReady, "", []string{"notify 12 kernel mitgcm@3: ready, 2 of 2 nodes"}},
		"failed": {hasFailed, "n2: no\nsuch driver", []string{"notify 12 kernel mitgcm@3: n2: no such driver"}},
	} {
		h := newHost(t)
		h.broker.ensure = func(_ int, stream api.AllocationService_EnsureKernelServer) error {
			for _, text := range said {
				if err := say(stream, switching, text); err != nil {
					return err
				}
			}
			return stream.Send(&api.EnsureKernelResponse{Phase: c.last, Message: c.text, NodesTotal: 2})
		}
		h.serve()
		h.job("CONFIGURING", 0)
		h.prolog()
		if got := h.asked(); slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "notify") }) {
			t.Errorf("%s: a script hears %q", name, got)
		}
		h.write("asked", "")
		h.write("interactive", "")
		h.prolog()
		want := append([]string{"notify 12 kernel mitgcm@3: loading, 0 of 2 nodes ready", "notify 12 kernel mitgcm@3: booting, 0 of 2 nodes ready, usually 14 s"}, c.want...)
		if got := slices.DeleteFunc(h.asked(), func(s string) bool { return s == requeued }); !slices.Equal(got, want) {
			t.Errorf("%s: %q\nwant %q", name, got, want)
		}
	}
}

// A job whose nodes run its kernel already hears nothing.
func TestNothingToTell(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.broker.ensure = always(isReady, "")
	h.serve()
	h.write("interactive", "")
	if code, output, _ := h.prolog(); code != 0 || len(h.asked()) != 0 {
		t.Errorf("exit %d, %q: %s", code, h.asked(), output)
	}
}
