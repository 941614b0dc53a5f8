// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestMeter(t *testing.T) {
	var out bytes.Buffer
	m := Progress{Out: &out, Kernel: "x"}.meter()
	m.report(1, 4, false)
	if out.Len() != 0 {
		t.Errorf("reported at once: %q", out.String())
	}
	m.started = time.Now().Add(-90 * time.Second)
	for _, c := range []struct {
		done, total int
		end         bool
		want        string
	}{
		{2, 4, false, "x: 2 of 4 files compiled (50 %), 1m30s\n"},
		{6, 0, false, "x: 6 files compiled, 1m30s\n"},
		{7, 7, true, "x: 7 files compiled in 1m30s\n"},
	} {
		out.Reset()
		m.reported = m.reported.Add(-2 * reportInterval)
		m.report(c.done, c.total, c.end)
		if out.String() != c.want {
			t.Errorf("got %q, want %q", out.String(), c.want)
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
