// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package emulated

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// notHere are commands of the pages that an emulated cluster cannot do.
var notHere = map[string]string{
	"kernelctl web":                      "it serves until it is interrupted; package web has its tests",
	"kernelctl run report 12":            "without cgroups no run has a result",
	"kernelctl profile release mitgcm@1": "a release follows a quarantine, as in operate.md",
	"kernelctl run diff 12 13":           "without cgroups no run has a result",
	"kernelctl kernel register --profile mitgcm --kernel bzImage": "the kernels are no images",
}

var (
	// spoken is a whole command in a sentence.
	spoken = regexp.MustCompile("`(kernelctl [a-z]+ [a-z]+ [^`]+)`")
	// known are programs of the pages; other lines are files, or what a command prints.
	known = regexp.MustCompile(`^(kernelctl|sbatch|srun|squeue|sinfo|scontrol|journalctl) `)
	// manifold is what stands for many things.
	manifold  = regexp.MustCompile(`\b(N|NAME|FILE|USER|NODE|ACTION|RUN)\b`)
	submitted = regexp.MustCompile(`Submitted batch job (\d+)`)
)

// commandsOf a page, in its order: those in blocks, and kernelctl's in sentences.
func (s *Trial) commandsOf(page string) (all []string) {
	s.T.Helper()
	text, err := os.ReadFile(filepath.Join(s.Options().Repo, page))
	s.OK(err)
	block := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "```"):
			block = !block
		case block && known.MatchString(line):
			all = append(all, line)
		case !block:
			for _, m := range spoken.FindAllStringSubmatch(line, -1) {
				all = append(all, m[1])
			}
		}
	}
	return slices.DeleteFunc(all, manifold.MatchString)
}

// Each command on the pages that people follow does what it is shown for.
func TestPages(t *testing.T) {
	t.Parallel()
	s := Start(t, func(o *Options) { o.Broker = map[string]any{"reset_command": []string{"/usr/bin/true", "{node}"}} })
	// Three versions of mitgcm, of which one was promoted before.
	profile := strings.Replace(profileText("mitgcm", "mitgcm"), "requires:", `  - version: 2
    kernel: mitgcm-2
    arguments: []
  - version: 3
    kernel: mitgcm-3
    arguments: []
requires:`, 1)
	for _, name := range []string{"mitgcm-2", "mitgcm-3"} {
		s.OK(s.WriteKernel(KernelNamed(name)))
	}
	s.OK(write(s.Path("catalog/profiles/mitgcm.yaml"), profile, 0o644))
	s.OK(s.ApplyCatalog(s.Ctx))
	s.File("alice", "job.sh", "#!/bin/bash\nexec /emulated/job held\n")
	met := map[string]bool{}
	var jobs []submission
	for _, page := range []struct{ name, user string }{
		{"docs/users.md", "alice"}, {"docs/ops/troubleshooting.md", "root"}, {"docs/ops/operate.md", "root"}, {"docs/ops/kexec.md", "root"},
	} {
		seen := 0
		for _, line := range s.commandsOf(page.name) {
			if impossible(line, met) {
				continue
			}
			seen++
			if strings.HasPrefix(line, "kernelctl node qualify") {
				jobs = s.ended(jobs)
				s.Settled(Limit)
				if !strings.Contains(line, "--rounds") {
					line = strings.Replace(line, "qualify", "qualify --rounds 1", 1)
				}
			}
			job := "1"
			if len(jobs) > 0 {
				job = jobs[0].id // which has its nodes: a page waits for it
			}
			line = strings.NewReplacer("1234", job, "JOB", job, "n7", "n1", "--rounds 10", "--rounds 1").Replace(line)
			r := s.Try(page.user, "sh", "-c", line)
			if strings.HasPrefix(line, "kernelctl job ") {
				// People type more slowly than the broker looks at Slurm.
				s.Within(Limit, func() bool { r = s.Try(page.user, "sh", "-c", line); return r.Exit == 0 })
			}
			finds := strings.HasPrefix(line, "kernelctl doctor") && r.Exit == 1 // findings are its result
			if r.Exit != 0 && !finds {
				t.Errorf("%s: %s: exit %d\n%s%s", page.name, line, r.Exit, r.Stdout, r.Stderr)
			}
			if m := submitted.FindStringSubmatch(r.Stdout); m != nil {
				jobs = append(jobs, submission{page.user, m[1], line})
			}
		}
		if seen < 3 {
			t.Errorf("%s: only %d commands were found", page.name, seen)
		}
	}
	for command, reason := range notHere {
		if !met[command] {
			t.Errorf("no page has %q any more (%s)", command, reason)
		}
	}
}

// submission is a job of a page's.
type submission struct{ user, id, line string }

// ended lets the jobs end, and checks that each ran where it was to.
func (s *Trial) ended(jobs []submission) []submission {
	s.T.Helper()
	for _, j := range jobs {
		s.LetGo(j.user, j.id)
	}
	for _, j := range jobs {
		s.WaitJob(j.id, "COMPLETED")
		profile, nodes := StockName, 1
		if strings.Contains(j.line, "--kernel-profile=mitgcm") {
			profile = "mitgcm"
		}
		if strings.Contains(j.line, "-N2") {
			nodes = 2
		}
		s.RanOn(j.user, j.id, profile, nodes)
	}
	return nil
}

// impossible reports whether an emulated cluster cannot do it, and notes that it was met.
func impossible(line string, met map[string]bool) bool {
	for command := range notHere {
		if strings.HasPrefix(line, command) {
			met[command] = true
			return true
		}
	}
	return false
}
