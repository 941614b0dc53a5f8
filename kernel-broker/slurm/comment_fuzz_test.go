package slurm

import (
	"strings"
	"testing"
)

// A user who writes AdminComment= into a field of his own is not believed.
func FuzzParseAdminComment(f *testing.F) {
	f.Add("JobId=1 AdminComment=x\n", "y")
	f.Add("Comment=a\n   AdminComment=kernel-broker: x\n", "AdminComment=y")
	f.Fuzz(func(t *testing.T, out, comment string) {
		text := parseAdminComment(out)
		if strings.Contains(text, "\n") || text != strings.TrimSpace(text) {
			t.Errorf("%q has %q", out, text)
		}
		if got := parseAdminComment("JobId=1 Comment=" + comment + "\n   AdminComment=ours\n"); strings.Contains(comment, "AdminComment=") && got != "" {
			t.Errorf("with %q it is %q", comment, got)
		}
	})
}
