// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/scontrol"
)

// A parsed comment is what squeue printed as a comment.
func FuzzParseAdminComment(f *testing.F) {
	f.Add(accountLine("12", "kernel-broker: mitgcm requested"))
	f.Add(accountLine("12", "x\n12          kernel-broker: mitgcm requested"))
	f.Add("JobId=12 Comment=AdminComment=kernel-broker: mitgcm requested\n")
	f.Fuzz(func(t *testing.T, out string) {
		text, err := parseAdminComment(out, 12)
		if err != nil {
			return
		}
		if text != strings.TrimSpace(text) || len(text) >= scontrol.TextWidth || !strings.Contains(out, text) {
			t.Errorf("%q has %q", out, text)
		}
	})
}
