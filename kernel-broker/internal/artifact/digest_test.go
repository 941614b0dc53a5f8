// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

const emptyDigest = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func TestParseDigest(t *testing.T) {
	d, err := ParseDigest(emptyDigest)
	if err != nil || d != digestOf(nil) || d.String() != emptyDigest || d.IsZero() {
		t.Fatalf("ParseDigest(%q) = %v, %v", emptyDigest, d, err)
	}
	for _, bad := range []string{
		"", "sha256:", emptyDigest[7:], emptyDigest[:70], emptyDigest + "0", " " + emptyDigest, emptyDigest + "\n",
		strings.ToUpper(emptyDigest), "sha256:" + strings.ToUpper(emptyDigest[7:]), "sha512:" + emptyDigest[7:],
		"sha256:../" + emptyDigest[10:], strings.Replace(emptyDigest, "e3", "g3", 1), strings.Repeat("x", 1<<20),
	} {
		d, err := ParseDigest(bad)
		if !errors.Is(err, ErrInvalidDigest) || !d.IsZero() {
			t.Errorf("ParseDigest(%.80q) = %v, %v", bad, d, err)
		}
		if err != nil && len(err.Error()) > 500 {
			t.Errorf("the error repeats all of its input: %d bytes", len(err.Error()))
		}
	}
}

func TestDigestAsJSON(t *testing.T) {
	type document struct {
		Image Digest            `json:"image"`
		Files map[Digest]string `json:"files"`
	}
	in := document{Image: digestOf(nil), Files: map[Digest]string{digestOf([]byte("x")): "x"}}
	text, err := json.Marshal(in)
	if err != nil || !strings.Contains(string(text), `"image":"`+emptyDigest+`"`) {
		t.Fatalf("Marshal = %s, %v", text, err)
	}
	var out document
	if err := json.Unmarshal(text, &out); err != nil || out.Image != in.Image || len(out.Files) != 1 {
		t.Fatalf("Unmarshal = %v, %v", out, err)
	}
	if err := json.Unmarshal([]byte(`{"image":"sha256:zz"}`), &out); !errors.Is(err, ErrInvalidDigest) {
		t.Errorf("Unmarshal of a bad digest = %v", err)
	}
}

func FuzzParseDigest(f *testing.F) {
	f.Add(emptyDigest)
	f.Add("sha256:" + strings.Repeat("0", 64))
	f.Add("sha256:" + strings.Repeat("G", 64))
	f.Add("sha256:")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ParseDigest(text)
		if err != nil {
			if !errors.Is(err, ErrInvalidDigest) || !d.IsZero() {
				t.Fatalf("ParseDigest(%q) = %v, %v", text, d, err)
			}
			return
		}
		if d.String() != text {
			t.Fatalf("ParseDigest(%q).String() = %q", text, d)
		}
		if again, err := ParseDigest(d.String()); err != nil || again != d {
			t.Fatalf("not read back: %v, %v", again, err)
		}
	})
}
