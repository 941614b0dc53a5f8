// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
)

// kernel show displays a signature whatever its key ids are: they are untrusted text.
func TestShowWithAnyKeyID(t *testing.T) {
	f := newFixture(t)
	dir, kernels := invented(t)
	f.must(0, "", "profile", "apply", dir, "--kernels", kernels)
	key, trust := f.key(t)
	good := envelope(t, key, f.version(t, mitgcm1).Kernel, nil)
	for name, c := range map[string]struct {
		id   string
		want string
	}{
		"none":     {"", ", by " + trust.Keys[0].ID[7:19] + " a key that is not named"},
		"no-name":  {"x", `signatures[1]: keyid "x"`},
		"a-prefix": {"sha256:", `signatures[1]: keyid "sha256:"`},
		"another":  {"sha256:" + strings.Repeat("5", 64), ", by " + trust.Keys[0].ID[7:19] + " 555555555555"},
	} {
		var e dsse.Envelope
		if err := json.Unmarshal(good, &e); err != nil {
			t.Fatal(err)
		}
		e.Signatures = append(e.Signatures, dsse.Signature{KeyID: c.id, Sig: base64.StdEncoding.EncodeToString([]byte("x"))})
		raw, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		f.put(t, name, raw)
		for _, output := range []string{"wide", "json"} {
			out := f.must(0, "", "kernel", "show", "mitgcm@1", "-o", output)
			if output == "wide" && !strings.Contains(out, c.want) {
				t.Errorf("%s: no %q in\n%s", name, c.want, out)
			}
		}
	}
	f.put(t, "as-it-was", good)
	if out := f.must(0, "", "kernel", "show", "mitgcm@1", "-o", "wide"); !strings.Contains(out, ", by "+trust.Keys[0].ID[7:19]+"\n") {
		t.Errorf("as it was signed:\n%s", out)
	}
}
