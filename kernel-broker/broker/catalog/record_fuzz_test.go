// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"bytes"
	"log/slog"
	"regexp"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

// FuzzRecord reads arbitrary store content. An accepted profile can be written back unchanged and offered.
// snapshotText is the form that slurm-plugin/src/submit reads.
var snapshotText = regexp.MustCompile(`^kernel-broker-snapshot 1\ngenerated [0-9TZ:-]{20}\n(profile [a-z0-9][a-z0-9._-]* [1-9][0-9]* [0-9,]+ (available|quarantined)\n)*end\n$`)

func FuzzRecord(f *testing.F) {
	seed, err := (&record{Profile: kb.Profile{Name: "mitgcm", Application: "x", DefaultVersion: 1,
		Versions: []kb.ProfileVersion{{Kernel: kb.Kernel{Profile: "mitgcm", Version: 1, Arguments: []string{"quiet"}}}}},
		Requests: []request{{ID: "1", Digest: "2"}}, Failures: []string{"n1"}, Writes: []string{"w"}}).encode(store.MaxCommitBytes)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte(`{"format":1,"profile":{"name":"mitgcm","versions":null}}`))
	f.Add([]byte("null"))
	f.Fuzz(func(t *testing.T, value []byte) {
		r, err := decode("mitgcm", value)
		if err != nil {
			return
		}
		first, err := r.encode(store.MaxCommitBytes)
		if err != nil {
			t.Fatalf("a parsed record cannot be written: %v", err)
		}
		back, err := decode("mitgcm", first)
		if err != nil {
			t.Fatalf("a written record cannot be read: %v", err)
		}
		if second, err := back.encode(store.MaxCommitBytes); err != nil || !bytes.Equal(first, second) {
			t.Errorf("%s\nbecame\n%s\n%v", first, second, err)
		}
		s := memstore.New()
		defer s.Close()
		if _, err := s.Commit(t.Context(), store.Write{Key: key("mitgcm"), Value: value}); err != nil {
			return // too large for any store
		}
		c := New(Options{Store: s, Log: slog.New(slog.DiscardHandler)})
		profiles, err := c.List(t.Context())
		if err != nil || len(profiles) != 1 {
			t.Fatalf("%d profiles, %v", len(profiles), err)
		}
		text, err := c.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !snapshotText.MatchString(text) && profiles[0].Validate() == nil {
			t.Errorf("the snapshot of a valid profile is not one that the plugin reads:\n%s", text)
		}
	})
}
