// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// The longest texts in a record: each character needs an escape.
var (
	longest   = strings.Repeat(`"`, 1<<10)
	longestBy = kb.WithAuthor(context.Background(), longest, longest)
)

func longID(n int) string { return fmt.Sprintf("%0*d", kb.MaxRequestID, n) }

// brim registers a profile and makes its record as full as the catalog lets it
// become.
func brim(t *testing.T, c *Catalog, versions uint32, envelope int) {
	t.Helper()
	p := profile("mitgcm", 2)
	for v := uint32(3); v <= versions; v++ {
		k := kernel("mitgcm", v)
		k.ImageDigest = fmt.Sprintf("sha256:%064x", v)
		p.Versions = append(p.Versions, kb.ProfileVersion{Kernel: k})
	}
	apply(t, c, longID(0), p)
	id := 0
	for v := uint32(1); v <= versions; v++ {
		least, refused := 0, envelope+1
		for refused-least > 1 {
			size := (least + refused) / 2
			if refused > envelope {
				size = envelope // most versions use the whole limit
			}
			id++
			_, _, err := c.Sign(longestBy, longID(id), kb.Ref{Profile: "mitgcm", Version: v}, bytes.Repeat([]byte{byte(id)}, size))
			if err == nil {
				least = size
			} else if refused = size; !errors.Is(err, kb.ErrFailedPrecondition) || !strings.Contains(err.Error(), `profile "mitgcm" is full`) {
				t.Fatalf("version %d signed with %d bytes: %v", v, size, err)
			}
			if least == envelope {
				break
			}
		}
		if least < envelope {
			return
		}
	}
	t.Fatal("the profile accepts everything")
}

// A full profile still accepts any sequence of lifecycle changes with the longest texts.
func TestFullProfileAcceptsLifecycleChanges(t *testing.T) {
	for name, c := range map[string]struct {
		versions uint32
		envelope int
		steps    int
	}{
		"two versions, signatures of half a MiB": {2, 512 << 10, 3*maxRequests + maxFailures},
		"many versions":                          {100, 12 << 10, 100},
	} {
		t.Run(name, func(t *testing.T) {
			catalog, kept := newCatalog(t)
			brim(t, catalog, c.versions, c.envelope)
			version := func(n int) kb.Ref {
				return kb.Ref{Profile: "mitgcm", Version: uint32(n)%c.versions + 1}
			}
			for i := range c.steps {
				id, ref := longID(1e6+i), version(i/4)
				var err error
				// More boot failures are remembered than anything else.
				step := 3
				if i < 4*maxRequests {
					step = i % 4
				}
				switch step {
				case 0:
					_, _, err = catalog.Promote(longestBy, id, ref)
				case 1:
					_, _, err = catalog.Quarantine(longestBy, id, ref, longest)
				case 2:
					err = catalog.ReleaseQuarantine(longestBy, id, ref)
				case 3:
					_, err = catalog.RecordBootFailure(t.Context(), BootFailure{ID: id, Ref: ref, Cause: longest, Only: true, Threshold: 1e6})
				}
				if err != nil {
					t.Fatalf("step %d: %v", i, err)
				}
			}
			checkHistory(t, catalog, kept)
			// All at once: each version failed to boot, and all are retired.
			for n := range c.versions {
				if quarantined, err := catalog.RecordBootFailure(t.Context(), BootFailure{ID: longID(2e6 + int(n)), Ref: version(int(n)), Cause: longest, Only: true, Threshold: 1}); err != nil || !quarantined {
					t.Fatalf("version %d: quarantined %v, %v", n, quarantined, err)
				}
			}
			if p, _, err := catalog.Retire(longestBy, longID(3e6), kb.Ref{Profile: "mitgcm"}, longest); err != nil || !p.Retired() {
				t.Error(err)
			}
			checkHistory(t, catalog, kept)
		})
	}
}

// checkHistory requires the reserved space to be full of the latest changes: nothing else may use it.
func checkHistory(t *testing.T, c *Catalog, kept store.Store) {
	t.Helper()
	stored, err := kept.Get(t.Context(), key("mitgcm"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.Get(t.Context(), "mitgcm")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(p.History)
	if err != nil || len(text) < 63<<10 || len(text) > 64<<10 || len(stored.Value) > store.MaxCommitBytes {
		t.Errorf("%d changes in %d bytes, in a record of %d, %v", len(p.History), len(text), len(stored.Value), err)
	}
}

// A change that would fill a profile is rejected with a hint, changes nothing, and succeeds once there is space.
func TestFullProfileRejectsVersions(t *testing.T) {
	c, _ := newCatalog(t)
	brim(t, c, 2, 512<<10)
	before, err := c.Get(t.Context(), "mitgcm")
	if err != nil {
		t.Fatal(err)
	}
	more := before
	more.Versions = append(more.Versions, kb.ProfileVersion{Kernel: kernel("mitgcm", 3), Envelope: []byte("signature")})
	_, _, err = c.Apply(t.Context(), "more", more)
	if !errors.Is(err, kb.ErrFailedPrecondition) || !strings.Contains(err.Error(), `profile "mitgcm" is full: 3 versions`) ||
		!strings.Contains(err.Error(), "as another profile, or sign with fewer keys") {
		t.Errorf("one version more: %v", err)
	}
	if after, err := c.Get(t.Context(), "mitgcm"); err != nil || !reflect.DeepEqual(before, after) {
		t.Errorf("a rejected change modified the profile: %v", err)
	}
	if _, _, err := c.Sign(t.Context(), "less", kb.Ref{Profile: "mitgcm", Version: 2}, []byte("signature")); err != nil {
		t.Fatal(err)
	}
	if !apply(t, c, "again", more) {
		t.Error("the version is not there")
	}
}

// A record that was filled before the limit existed can be stopped and made smaller; its history is dropped if
// necessary.
func TestOversizedProfileCanShrink(t *testing.T) {
	c, kept := newCatalog(t)
	r := &record{Format: recordFormat, Profile: profile("mitgcm", 2), Writes: []string{"w"}}
	for range 10 {
		r.Profile.History = append(r.Profile.History, kb.Change{At: noon, Who: longest[:200], What: kb.ChangeChanged, Reason: longest[:200]})
	}
	r.Profile.Versions[0].Envelope = make([]byte, 400<<10)
	fill := func() []byte {
		value, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	r.Profile.Description = strings.Repeat("x", store.MaxCommitBytes-len(key("mitgcm"))-len(fill()))
	if _, err := kept.Commit(t.Context(), store.Write{Key: key("mitgcm"), Value: fill()}); err != nil {
		t.Fatal(err)
	}
	if quarantined, err := c.RecordBootFailure(t.Context(), BootFailure{ID: "boot", Ref: mitgcm2, Cause: longest, Only: true, Threshold: 1}); err != nil || !quarantined {
		t.Errorf("quarantined %v, %v", quarantined, err)
	}
	p, err := c.Get(t.Context(), "mitgcm")
	if last := len(p.History) - 1; err != nil || last < 0 || last > 9 || p.History[last].What != kb.ChangeQuarantined {
		t.Errorf("%d changes, %v", len(p.History), err)
	}
	if _, _, err := c.Sign(t.Context(), "more", mitgcm2, make([]byte, 4<<10)); !errors.Is(err, kb.ErrFailedPrecondition) {
		t.Errorf("signed with more: %v", err)
	}
	if _, _, err := c.Sign(t.Context(), "less", kb.Ref{Profile: "mitgcm", Version: 1}, make([]byte, 399<<10)); err != nil {
		t.Errorf("signed with less: %v", err)
	}
}

// A store that takes less than others has room for fewer versions, and for all changes of those.
func TestFullProfileInASmallerStore(t *testing.T) {
	c, kept := newCatalog(t)
	const most = 256 << 10
	kept.Limit(store.Limits{Writes: store.MaxWrites, Bytes: most})
	brim(t, c, 1, most)
	if _, _, err := c.Retire(longestBy, longID(3e6), kb.Ref{Profile: "mitgcm"}, longest); err != nil {
		t.Error(err)
	}
	stored, err := kept.Get(t.Context(), key("mitgcm"))
	if err != nil || len(stored.Value) > most || len(stored.Value) < most/2 {
		t.Errorf("the record has %d bytes, %v", len(stored.Value), err)
	}
}
