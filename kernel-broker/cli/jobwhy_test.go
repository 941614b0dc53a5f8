// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
)

func TestJobWhy(t *testing.T) {
	f := newFixture(t)
	out := strings.Join(strings.Fields(f.must(0, "", "job", "why", "21")), " ")
	if !strings.HasPrefix(out, "job 21 waits for nodes that return Slurm, whose reason is Resources NODE ON ITS WAY SINCE n4 ") {
		t.Error(out)
	}
	if out := f.must(0, "", "job", "why", "21", "-o", "json"); !strings.Contains(out, `"waits"`) || !strings.Contains(out, `"n4"`) {
		t.Error(out)
	}
	if out := f.must(0, "", "job", "why", "22"); out != "job 22 waits for nothing: Slurm shows it as RUNNING\n" {
		t.Error(out)
	}
	f.must(3, "job 23 has ended or is unknown", "job", "why", "23")
	f.must(2, `"12_1" is not a job's number`, "job", "why", "12_1")
}
