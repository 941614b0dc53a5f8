// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/doctor"
)

// A broker that sends its images slowly, or many of them, does not keep the doctor.
func TestImagesAreReadForALimitedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fetched := 0
		s := &surveyor{site: &doctor.Site{}, Options: Options{Fetch: func(ctx context.Context, _ string, _ uint64, _ io.Writer) error {
			fetched++
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(10 * time.Minute):
				return io.ErrUnexpectedEOF
			}
		}}}
		var versions []kb.ProfileVersion
		for v := range uint32(3) {
			versions = append(versions, kb.ProfileVersion{Kernel: kb.Kernel{Profile: "cores", Version: v + 1, Arguments: []string{"nohz_full=1"}}})
		}
		s.site.Profiles = doctor.Known([]kb.Profile{{Name: "cores", Versions: versions}})
		begin := time.Now()
		s.ignored(t.Context())
		if took := time.Since(begin); took > imagesLimit {
			t.Errorf("took %v", took)
		}
		if len(s.site.Ignored) != 3 || fetched != 1 {
			t.Errorf("%d facts, %d images fetched", len(s.site.Ignored), fetched)
		}
		for ref, f := range s.site.Ignored {
			if f.Value != nil || !strings.Contains(f.Why, ref.String()) || !strings.Contains(f.Why, errImages.Error()) {
				t.Errorf("%s: %+v", ref, f)
			}
		}
	})
}
