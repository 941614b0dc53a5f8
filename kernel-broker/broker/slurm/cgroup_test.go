// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

func TestCgroup(t *testing.T) {
	const (
		name    = "s1C5M8FXCH1800"
		byID    = "CgroupJobIdPaths        = yes"
		bySLUID = "CgroupJobIdPaths        = no"
		older   = "CgroupPlugin            = cgroup/v2"
	)
	for _, c := range []struct {
		name, config, jobs, want string
		err                      error
	}{
		{"an older Slurm", older, "", "", nil},
		{"by the job's id", byID, "", "", nil},
		{"by its SLUID", bySLUID, accountLine("7", name), name, nil},
		{"the last task of an array, with its id", bySLUID, accountLine("7", name) + accountLine("8", "s1C5M8FXCH1801"), name, nil},
		{"tasks that wait beside it", bySLUID, accountLine("7", name) + accountLine("7", "s1C5M8FXCH1801"), "", kb.ErrUnavailable},
		{"no such job", bySLUID, "", "", kb.ErrUnavailable},
		{"something else", bySLUID, accountLine("7", "../../x"), "", kb.ErrUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, log := fake(t, "[ \"$*\" = 'show config' ] && echo '"+c.config+"'", "printf '%s' '"+c.jobs+"'")
			got, err := client.Cgroup(t.Context(), 7)
			if got != c.want || !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
				t.Errorf("%q, %v", got, err)
			}
			if asked := strings.Contains(log(), "--jobs=7"); asked != (c.config == bySLUID) {
				t.Errorf("ran\n%s", log())
			}
		})
	}
	client, _ := fake(t, "exit 1", "")
	if _, err := client.Cgroup(t.Context(), 7); err == nil {
		t.Error("no error without slurmctld")
	}
}

// Many jobs that begin at once ask about themselves a few at a time: each question is a process on slurmctld's host.
func TestQuestionsAboutJobsAtATime(t *testing.T) {
	dir := t.TempDir()
	client, _ := fake(t, "echo 'CgroupJobIdPaths = no'", fmt.Sprintf(`cd '%s' && : >asks.$$ && ls asks.* | wc -l >seen.$$; sleep 0.05; rm asks.$$
printf '%%s' '%s'`, dir, accountLine("7", "s1C5M8FXCH1800")))
	var jobs errgroup.Group
	for range 20 {
		jobs.Go(func() error { _, err := client.Cgroup(t.Context(), 7); return err })
		jobs.Go(func() error { _, err := client.AdminComment(t.Context(), 7); return err })
		jobs.Go(func() error { _, err := client.Account(t.Context(), 7); return err })
	}
	if err := jobs.Wait(); err != nil {
		t.Fatal(err)
	}
	most := 0
	seen, err := filepath.Glob(filepath.Join(dir, "seen.*"))
	if err != nil || len(seen) == 0 {
		t.Fatal(seen, err)
	}
	for _, name := range seen {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, n)
	}
	if t.Logf("60 questions, at most %d at a time", most); most < 2 || most > jobsAtATime {
		t.Errorf("%d at a time, 2 to %d are wanted", most, jobsAtATime)
	}
}
