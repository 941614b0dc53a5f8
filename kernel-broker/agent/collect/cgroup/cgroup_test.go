// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"testing"
)

func TestParse(t *testing.T) {
	values, err := parse([]byte("usage_usec 12\nuser_usec 7\n\n"))
	if err == nil {
		t.Errorf("an empty line was taken: %v", values)
	}
	values, err = parse([]byte("usage_usec 12\nuser_usec 7\n"))
	if err != nil || values["usage_usec"] != 12 || values["user_usec"] != 7 {
		t.Errorf("%v, %v", values, err)
	}
	for _, text := range []string{"a", "a b", " 1", "a -1"} {
		if values, err := parse([]byte(text)); !errors.Is(err, errLine) {
			t.Errorf("%q: %v, %v", text, values, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("populated 1\nfrozen 0\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		values, err := parse(text)
		if err == nil && values == nil {
			t.Error("neither values nor an error")
		}
	})
}

func TestLess(t *testing.T) {
	got := CPUTime{AllNS: 5, UserNS: 3, SystemNS: 2}.Less(CPUTime{AllNS: 1, UserNS: 4})
	if got != (CPUTime{AllNS: 4, SystemNS: 2}) {
		t.Errorf("less is %+v", got)
	}
}

func TestOpenRefuses(t *testing.T) {
	if _, err := Open(t.TempDir()); !errors.Is(err, ErrKind) {
		t.Errorf("a plain folder: %v", err)
	}
	if _, err := Open("/nowhere"); err == nil {
		t.Error("a folder that is not there was opened")
	}
}
