// SPDX-License-Identifier: Apache-2.0

package mtls

import "testing"

// What names a node in a certificate is written one way only.
func FuzzParseName(f *testing.F) {
	for _, seed := range []string{"kernel-broker://lab/node/n1", "kernel-broker://lab/broker/ctl", "kernel-broker://lab/node/n1/", "kernel-broker:///node/n1",
		"kernel-broker://lab/node/%6e1", "kernel-broker://u@lab/node/n1", "x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := ParseName(text)
		if err != nil {
			return
		}
		if uri, err := n.URI(); err != nil || uri.String() != text {
			t.Errorf("%q became %+v, which is %v, %v", text, n, uri, err)
		}
	})
}

// Certificates come from files and from messages.
func FuzzParseCertificates(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	f.Add([]byte("-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := ParseCertificates(text)
		if err != nil {
			return
		}
		again, err := ParseCertificates(EncodeCertificates(list))
		if err != nil || len(again) != len(list) {
			t.Fatalf("%d certificates became %d, %v", len(list), len(again), err)
		}
		for i := range list {
			if !list[i].Equal(again[i]) {
				t.Errorf("certificate %d is another one", i)
			}
		}
	})
}
