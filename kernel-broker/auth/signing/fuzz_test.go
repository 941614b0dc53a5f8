// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"bytes"
	"os"
	"testing"
)

// Whatever is in an envelope, reading it ends, and what is read is written the
// same way again.
func FuzzEnvelope(f *testing.F) {
	own := ed(f)
	f.Add(sign(f, ManifestOf(kernel(), terms()), own))
	f.Add([]byte(`{"payloadType":"application/vnd.kernelbroker.kernel+json","payload":"e30=","signatures":[{"keyid":"","sig":""}]}`))
	f.Add([]byte("{}"))
	trust := Trust{Cluster: "alpha", Keys: []TrustedKey{trusts(f, "own", own)}}
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, _, err := Peek(raw)
		if err == nil {
			if err := m.Validate(); err != nil {
				t.Errorf("read %+v: %v", m, err)
			}
		}
		v, err := Verify(raw, trust, kernel(), Memory{}, moment)
		if err == nil && v.Manifest.Describes(kernel()) != nil {
			t.Errorf("verified %+v", v.Manifest)
		}
	})
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(payload(f, ManifestOf(kernel(), terms()))))
	f.Add([]byte(`{"format":1}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := decodeManifest(raw)
		if err != nil {
			return
		}
		if again, err := m.encode(); err != nil || !bytes.Equal(again, raw) {
			t.Errorf("%s\nis written again as\n%s (%v)", raw, again, err)
		}
	})
}

// A trust list that is taken has keys, a cluster, and nothing that is no digest.
func FuzzTrust(f *testing.F) {
	sample, err := os.ReadFile("trust.sample.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sample)
	f.Add([]byte("cluster: a\nkeys: [{name: a, public: x}]\n"))
	f.Add([]byte("&a [*a]"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		trust, err := ParseTrust("fuzz", raw)
		if err == nil && (trust.Cluster == "" || len(trust.Keys) == 0 || len(trust.validate()) > 0) {
			t.Errorf("list is %+v", trust)
		}
	})
}
