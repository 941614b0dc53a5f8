// SPDX-License-Identifier: Apache-2.0

package lab

import "testing"

func TestStockText(t *testing.T) {
	text := "name: stock\ndescription: a kernel: of sorts\nversions:\n  - version: 1\n    kernel: stock\n    arguments: []\n"
	want := "name: stock\ndescription: a kernel: of sorts\nversions:\n  - version: 1\n    kernel: suite-stock\n    arguments: []\n"
	if got := stockText(text, "suite-stock"); got != want {
		t.Errorf("profile\n%s\nwant\n%s", got, want)
	}
}
