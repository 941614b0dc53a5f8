// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/client"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kernelbuild"
	"github.com/kernelbroker/kernelbroker/tests/support/imagetest"
)

// The arguments of the present default go on to the kernel that replaces it. They
// are what the broker says, and signed only if somebody signed them before.
func TestPublishSignsOnlyArgumentsThatWereSigned(t *testing.T) {
	f := newFixture(t)
	image, err := imagetest.Image(imagetest.Kernel{Release: "6.1.0-mitgcm", BuildID: strings.Repeat("ab", 20),
		Config: agentsConfig + "CONFIG_SMP=y\nCONFIG_CPU_ISOLATION=y\nCONFIG_NO_HZ_FULL=y\nCONFIG_RCU_NOCB_CPU=y\n"})
	if err != nil {
		t.Fatal(err)
	}
	f.must(0, "", "kernel", "register", "--no-boot-test", "--profile", "mitgcm", "--kernel", filepath.Join(describe(t, t.TempDir(), "mitgcm", string(image), strings.Repeat("ab", 20)), "bzImage"),
		"--driver", "virtio_net", "--argument", "quiet", "--argument", "nohz=off", "--system-cores", "2")
	key, trust := f.key(t)
	a := &app{config: client.DefaultPath, Invocation: Invocation{Getenv: func(string) string { return "unix://" + f.socket }, Stdout: os.Stdout, Stderr: new(strings.Builder)}}
	t.Cleanup(func() { _ = a.conn.Close() })
	s := signature{keys: []string{key}, cluster: "alpha", valid: time.Hour}
	if err := s.open(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	c := aCandidate(t, t.TempDir(), kb.OutcomeBenefit)
	publisher := kernelbuild.Publisher{Broker: buildBroker{app: a, signature: &s}, Beaten: defaultImage(t, a, "mitgcm")}
	if ref, err := publisher.Publish(t.Context(), c, new(strings.Builder)); !errors.Is(err, kb.ErrFailedPrecondition) ||
		!strings.Contains(err.Error(), "kernelctl kernel sign mitgcm@1") {
		t.Errorf("published %q, %v", ref, err)
	}
	f.must(0, "", sign(key, "--as-described")...)
	config := "CONFIG_SMP=y\nCONFIG_CPU_ISOLATION=y\nCONFIG_NO_HZ_FULL=y\nCONFIG_RCU_NOCB_CPU=y\n"
	if err := os.WriteFile(filepath.Join(c.Kernel, "config"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	ref, err := publisher.Publish(t.Context(), c, new(strings.Builder))
	if err != nil || ref != "mitgcm@2" {
		t.Fatalf("published %q, %v", ref, err)
	}
	if m := f.verify(t, trust, kb.Ref{Profile: "mitgcm", Version: 2}); !slices.Equal(m.Arguments, []string{"quiet", "nohz=off"}) || m.SystemCores != 2 {
		t.Errorf("signed: %+v", m)
	}
}
