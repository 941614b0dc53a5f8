// SPDX-License-Identifier: Apache-2.0

package tartest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"testing"
)

func TestMend(t *testing.T) {
	var made bytes.Buffer
	out := tar.NewWriter(&made)
	for _, text := range []string{"", "text", string(make([]byte, 1000))} {
		if err := out.WriteHeader(&tar.Header{Name: "aaaa", Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	changed := bytes.ReplaceAll(made.Bytes(), []byte("aaaa"), []byte("bbbb"))
	if _, err := tar.NewReader(bytes.NewReader(changed)).Next(); err == nil {
		t.Fatal("the checksum is not verified")
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(Zip(FixChecksums(changed))))
	if err != nil {
		t.Fatal(err)
	}
	names := 0
	for in := tar.NewReader(unzipped); ; names++ {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || header.Name != "bbbb" {
			t.Fatal(header, err)
		}
	}
	if names != 3 {
		t.Errorf("%d entries", names)
	}
}
