// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"path/filepath"
	"strings"
	"testing"
)

const sample = `format=1
boot_id=8ad0c5a4-0000-4000-8000-000000000001
build_id=5f0c
release=6.1.192-mitgcm
profile=mitgcm
version=3
job=1234,1240
attested=1
`

func TestStringIsTheAgreedFormat(t *testing.T) {
	s := State{
		BootID: "8ad0c5a4-0000-4000-8000-000000000001", BuildID: "5f0c", Release: "6.1.192-mitgcm",
		Profile: "mitgcm", Version: 3, Jobs: []uint32{1234, 1240}, Attested: true,
	}
	if s.String() != sample {
		t.Fatalf("got\n%s", s)
	}
	s.Lost = []uint32{1230, 1231}
	if s.String() != sample+"lost=1230,1231\n" {
		t.Fatalf("got\n%s", s)
	}
	path := filepath.Join(t.TempDir(), "run", "node.state")
	if _, present, err := Read(path); present || err != nil {
		t.Fatalf("missing file: %v, %v", present, err)
	}
	if err := Write(path, s); err != nil {
		t.Fatal(err)
	}
	if got, present, err := Read(path); err != nil || !present || !got.Equal(s) {
		t.Fatalf("got %+v, %v, %v", got, present, err)
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name, text string
		ok         bool
	}{
		{"sample", sample, true},
		{"unknown key", sample + "colour=blue\n", true},
		{"a job's kernel is lost", sample + "lost=1230\n", true},
		{"nothing is lost", sample + "lost=\n", true},
		{"odd lost job", sample + "lost=1230,\n", false},
		{"lost twice", sample + "lost=1230\nlost=1230\n", false},
		{"no job", strings.Replace(sample, "job=1234,1240\n", "", 1), true},
		{"unproven", strings.NewReplacer("mitgcm\n", "\n", "=3", "=0", "1234,1240", "", "attested=1", "attested=0").Replace(sample), true},
		{"empty", "", false},
		{"cut short", strings.TrimSuffix(sample, "\n"), false},
		{"twice", sample + "version=3\n", false},
		{"other format", strings.Replace(sample, "format=1", "format=2", 1), false},
		{"attested maybe", strings.Replace(sample, "attested=1", "attested=yes", 1), false},
		{"odd version", strings.Replace(sample, "version=3", "version=03", 1), false},
		{"odd job", strings.Replace(sample, "1234,", "1234,,", 1), false},
		{"no equals", sample + "word\n", false},
	} {
		if _, err := Parse(c.text); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestEqualSeesALostJob(t *testing.T) {
	a, err := Parse(sample + "lost=1230\n")
	if err != nil {
		t.Fatal(err)
	}
	same, other := a, a
	other.Lost = nil
	if a.Equal(other) || !a.Equal(same) {
		t.Fatalf("%+v and %+v", a, other)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(sample)
	f.Add("format=1\njob=\n")
	f.Add(sample + "lost=1230,1231\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(s.String())
		if err != nil || !again.Equal(s) {
			t.Fatalf("%+v became %+v, %v", s, again, err)
		}
	})
}
