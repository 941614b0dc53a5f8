// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
	"github.com/kernelbroker/kernelbroker/tests/support/imagetest"
)

// doctorArguments are for a host without Slurm and without daemons.
func doctorArguments(t *testing.T, more ...string) []string {
	t.Helper()
	config := filepath.Join(t.TempDir(), "client.yaml")
	if err := os.WriteFile(config, []byte("scontrol: /none/scontrol\nslurm_conf: /none/slurm.conf\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return append([]string{"doctor", "--config", config, "--broker-file", "/none/b", "--agent-file", "/none/a", "--ignore", "plugstack"}, more...)
}

// registerWith makes a kernel whose image carries a configuration, past what kernelctl would refuse.
func (f *fixture) registerWith(name, config string, arguments ...string) {
	f.t.Helper()
	id := strings.Repeat("ab", 20)
	image, err := imagetest.Image(imagetest.Kernel{Release: "6.1.0-" + name, BuildID: id, Config: config})
	if err != nil {
		f.t.Fatal(err)
	}
	sum := sha256.Sum256(image)
	digest := "sha256:" + hex.EncodeToString(sum[:])
	f.files.keep(image)
	p := kb.Profile{Name: name, Application: name, DefaultVersion: 1, Reuse: kb.ReuseNever, Fallback: kb.FallbackHold, BootAttempts: 1, BootTimeout: 60e9,
		Versions: []kb.ProfileVersion{{Kernel: kb.Kernel{Profile: name, Version: 1, ImageDigest: digest, ImageSize: uint64(len(image)),
			BuildID: id, Release: "6.1.0-" + name, Architecture: "x86_64", Drivers: []string{"virtio_net"}, Arguments: arguments}}}}
	if _, _, err := f.catalog.Apply(f.t.Context(), name, p); err != nil {
		f.t.Fatal(err)
	}
}

func TestDoctor(t *testing.T) {
	f := newFixture(t)
	f.registerWith(kb.StockProfile, agentsConfig)
	f.registerWith("tickless", agentsConfig, "nohz_full=1-3", "quiet")
	f.registerWith("fine", agentsConfig+"CONFIG_NO_HZ_FULL=y\n", "nohz_full=1-3")
	f.nodes.list = someNodes()
	f.nodes.list[0].AgentVersion = "0.9"
	out := f.must(1, "something is wrong", doctorArguments(t)...)
	for _, words := range []string{
		"warning: tickless@1 (ignored-arguments)\n    the kernel ignores \"nohz_full=1-3\": it was built without CONFIG_NO_HZ_FULL\n    remedy: ",
		"error: n2 (failed-nodes)\n    it could not be brought to its kernel: silent for 2m", "error: n2 (agents-away)", "warning: n1 (versions)",
		"4 findings on ", " not possible here (--all says why)\n",
	} {
		if !strings.Contains(out, words) {
			t.Errorf("no %q in\n%s", words, out)
		}
	}
	if strings.Contains(out, "fine@1") || strings.Contains(out, "\x1b") || strings.Contains(out, "CHECK") {
		t.Errorf("it prints\n%s", out)
	}
	accepted := []string{"--ignore", "ignored-arguments=tickless@1", "--ignore", "failed-nodes", "--ignore", "agents-away", "--ignore", "versions"}
	out = f.must(0, "", doctorArguments(t, append(accepted, "--all")...)...)
	for _, words := range []string{"no findings on ", "stock ", "accepted: n2", "not possible: this host is no compute node"} {
		if !strings.Contains(out, words) {
			t.Errorf("no %q in\n%s", words, out)
		}
	}
	var d diagnosis
	if err := json.Unmarshal([]byte(f.must(1, "", doctorArguments(t, "-o", "json")...)), &d); err != nil || len(d.Findings) != 4 || d.Passed == 0 || d.NotPossible == 0 {
		t.Errorf("as data: %+v, %v", d, err)
	}
	if out := f.must(1, "", doctorArguments(t, "-o", "yaml")...); !strings.Contains(out, "check: ignored-arguments") {
		t.Errorf("as YAML:\n%s", out)
	}
	f.must(2, `no check "tsl"`, doctorArguments(t, "--ignore", "tsl")...)
}

func TestDoctorOfAnIllBroker(t *testing.T) {
	f := newFixture(t)
	f.components = []server.Component{{Name: "store", Detail: "no leader"}}
	if out := f.must(1, "", doctorArguments(t)...); !strings.Contains(out, "error: store (broker-health)\n    no leader\n") {
		t.Errorf("it prints\n%s", out)
	}
	code, out, _ := runAt(t, "unix:///none/b.sock", doctorArguments(t)...)
	if code != 1 || !strings.Contains(out, "error: unix:///none/b.sock (broker-answers)") {
		t.Errorf("without a broker: exit %d\n%s", code, out)
	}
}
