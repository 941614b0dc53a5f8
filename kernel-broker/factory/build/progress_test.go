// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestMeterPlainLines(t *testing.T) {
	var out bytes.Buffer
	m := Progress{Out: &out, Kernel: "x"}.meter(4)
	m.add()
	if out.Len() != 0 {
		t.Errorf("told at once: %q", out.String())
	}
	m.told = m.told.Add(-2 * plainInterval)
	m.started = time.Now().Add(-90 * time.Second)
	m.add()
	rest, told := strings.CutPrefix(out.String(), "x: 2 of 4 files compiled (50 %), ")
	if since, err := time.ParseDuration(strings.TrimSuffix(rest, "\n")); !told || err != nil || since < 90*time.Second || since > time.Hour {
		t.Errorf("got %q (%v)", out.String(), err)
	}
	for range 4 { // more than were expected
		m.told = m.told.Add(-2 * plainInterval)
		m.add()
	}
	if !strings.Contains(out.String(), "x: 6 of 6 files compiled (100 %)") {
		t.Errorf("got %q", out.String())
	}
}

func TestMeterWithoutTotal(t *testing.T) {
	var out bytes.Buffer
	m := Progress{Out: &out, Kernel: "x"}.meter(0)
	m.told = m.told.Add(-2 * plainInterval)
	m.add()
	if !strings.HasPrefix(out.String(), "x: 1 files compiled, ") {
		t.Errorf("got %q", out.String())
	}
}

func TestMeterBar(t *testing.T) {
	var out bytes.Buffer
	m := Progress{Out: &out, Terminal: true, Kernel: "x"}.meter(2)
	for range 3 {
		m.add()
		time.Sleep(250 * time.Millisecond) // the bar draws at most each 200 ms
	}
	m.finish()
	for _, want := range []string{"x  50%", "(1/2", "x: 3 files compiled"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in %q", want, out.String())
		}
	}
}

func TestDryRunLines(t *testing.T) {
	text := "make -f x\n" +
		"set -e;  echo '  CC      kernel/fork.o'; gcc -c ...\n" +
		"set -e;  echo '  AS      entry.o'; gcc -c ...\n" +
		"set -e;  echo '  LD      vmlinux.o'; ld ...\n" +
		"  echo   CC a.o; gcc\n"
	if got, err := countUnitLines(strings.NewReader(text)); got != 3 || err != nil {
		t.Errorf("%d units, %v", got, err)
	}
}
