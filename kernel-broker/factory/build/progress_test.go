// SPDX-License-Identifier: Apache-2.0

package build

import (
	"strings"
	"testing"
)

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
