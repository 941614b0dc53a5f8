package slurm

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

func accountLine(id, account string) string { return fmt.Sprintf("%-12s%-1100s\n", id, account) }

func TestParseAccount(t *testing.T) {
	for _, c := range []struct {
		what, out, want string
		err             error
	}{
		{"one", accountLine("20", "climate"), "climate", nil},
		{"none", accountLine("20", "(null)"), "", nil},
		{"empty", accountLine("20", ""), "", nil},
		{"among others", accountLine("19", "ocean") + accountLine("20", "climate") + accountLine("21", "ice"), "climate", nil},
		{"tasks that wait", accountLine("20", "climate") + accountLine("20", "climate"), "climate", nil},
		{"with separators", accountLine("20", "a|b c"), "a|b c", nil},
		{"another with blanks before it", accountLine("20", " climate"), " climate", nil},
		{"a line break", accountLine("20", "x\n20          climate"), "", kb.ErrDenied},
		{"a line break of another kind", accountLine("20", "x\nclimate"), "", kb.ErrDenied},
		// slurmdbd lets coordinators make such accounts, and the next job's id is
		// no secret: by lines this would be the account climate, twice.
		{"a line break that lies", accountLine("20", "climate\n20          climate"), "", kb.ErrDenied},
		{"a line break at its end", accountLine("20", "climate\n"), "", kb.ErrDenied},
		{"somebody else's line break", accountLine("19", "x\n20          ocean") + accountLine("20", "climate"), "climate", nil},
		{"a tab at its end", accountLine("20", "climate\t"), "climate\t", nil},
		{"lines that do not agree", accountLine("20", "climate") + accountLine("20", "ocean"), "", kb.ErrDenied},
		{"cut off", accountLine("20", "climate")[:1000], "", kb.ErrUnavailable},
		{"shifted", "x" + accountLine("20", "climate"), "", kb.ErrUnavailable},
		{"somebody else's", accountLine("21", "climate"), "", kb.ErrUnavailable},
		{"nothing", "", "", kb.ErrUnavailable},
		{"rubbish", "x\n", "", kb.ErrUnavailable},
	} {
		got, err := parseAccount(c.out, 20)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %q, %v", c.what, got, err)
		}
	}
}

func FuzzParseAccount(f *testing.F) {
	f.Add(accountLine("20", "climate"))
	f.Fuzz(func(t *testing.T, out string) {
		account, err := parseAccount(out, 20)
		if err == nil && (strings.Contains(account, "\n") || account != "" && !strings.Contains(out, account)) {
			t.Errorf("%q has account %q", out, account)
		}
	})
}
