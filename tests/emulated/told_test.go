// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package emulated

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

// While nodes boot, srun and salloc print which step is under way and how long it usually takes; with --quiet they do not.
func TestWaitingForBootsIsTold(t *testing.T) {
	t.Parallel()
	s := Start(t, func(o *Options) { o.Nodes, o.ReturnToService, o.BootTime = 2, 2, 4*time.Second })
	const release = `[ "$SLURM_PROCID" = 0 ] || uname -r`
	told := func(argv ...string) []string {
		t.Helper()
		r := s.Try("alice", argv...)
		if r.Exit != 0 || strings.TrimSpace(r.Stdout) != KernelNamed("mitgcm").Release {
			t.Errorf("%v: %+v", argv, r)
		}
		var lines []string
		for line := range strings.Lines(r.Stderr) {
			if strings.Contains(line, "kernel mitgcm") {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		t.Logf("%s: %q", argv[0], lines)
		return lines
	}
	check := func(program string, usually bool, lines []string) {
		t.Helper()
		usual := regexp.MustCompile(`^` + program + `: kernel mitgcm: booting, [01] of 2 nodes ready, usually \d.* s$`)
		known := false
		for _, line := range lines {
			known = known || usual.MatchString(line)
		}
		all := strings.Join(lines, "\n")
		if !strings.Contains(all, program+": kernel mitgcm: booting, 0 of 2 nodes ready") || !strings.HasSuffix(all, program+": kernel mitgcm: ready, 2 of 2 nodes") || usually && !known {
			t.Errorf("%s prints\n%s", program, all)
		}
	}
	check("srun", false, told("srun", "-N2", "--kernel-profile=mitgcm", "sh", "-c", release))
	s.Settled(2 * Limit)
	check("salloc", true, told("salloc", "-N2", "--kernel-profile=mitgcm", "srun", "sh", "-c", release))
	s.Settled(2 * Limit)
	if lines := told("srun", "--quiet", "-N2", "--kernel-profile=mitgcm", "sh", "-c", release); len(lines) != 0 {
		t.Errorf("--quiet prints %q", lines)
	}
}
