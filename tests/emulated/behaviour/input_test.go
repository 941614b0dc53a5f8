// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package behaviour

import (
	"os"
	"slices"
	"strings"
)

// Invalid names are refused at submit, and nothing in them is executed.
func oddNames(c *cluster) {
	long := strings.Repeat("a", 1000)
	for _, name := range []string{
		"", " ", "mit gcm", "mitgcm ", " mitgcm", "MITGCM", "Mitgcm", `"mitgcm"`, "'mitgcm'", "mitgcm;touch /tmp/odd",
		"$(touch /tmp/odd)", "`touch /tmp/odd`", "mitgcm\nstock", "mitgcm\n", "\tmitgcm", "../stock", "/etc/passwd", "./mitgcm",
		"mitgcm/../stock", ".mitgcm", "mitgcm.", "-mitgcm", "mitgcm-", "%s%n", "mitgcm|stock", "mitgcm&", "mitgcm*", "m\\itgcm",
		"mitgcm,stock", "mïtgcm", "mitgcm\x01", "mitgcm\x7f", long, long + "@1",
		"mitgcm@", "mitgcm@0", "mitgcm@01", "mitgcm@-1", "mitgcm@1.0", "mitgcm@1@1", "mitgcm@1 ", "@1", "mitgcm@latest",
		"mitgcm@1234567890", "mitgcm@" + long,
	} {
		for _, command := range [][]string{{"sbatch", "--hold", "--wrap=true"}, {"srun", "--hold"}, {"salloc", "--hold"}} {
			argv := slices.Concat(command, []string{"--kernel-profile=" + name})
			if command[0] != "sbatch" {
				argv = append(argv, "true")
			}
			c.refused("alice", []string{"kernel-profile"}, argv...)
		}
	}
	c.file("alice", "directive.sh", "#!/bin/bash\n#SBATCH --kernel-profile=NoSuch;name\ntrue\n")
	c.refused("alice", []string{"NoSuch;name"}, "sbatch", "--hold", "directive.sh")

	// Names that could be one, and are not in the catalog.
	for name, words := range map[string][]string{
		"mitgmc":     {"mitgmc", `did you mean "mitgcm"?`},
		"mitgcm2":    {"mitgcm2", `did you mean "mitgcm"?`},
		"zzz":        {"zzz", "kernelctl profile list"},
		"mitgcm@7":   {"mitgcm", "no version 7", "it has 1"},
		"quiet@3":    {"quiet", "no version 3", "it has 1, 2"},
		"stock@9999": {"stock", "9999"},
	} {
		c.refused("alice", words, "sbatch", "--hold", "--wrap=true", "--kernel-profile="+name)
		c.refused("bob", words, "srun", "--hold", "--kernel-profile="+name, "true")
		c.refused("bob", words, "salloc", "--hold", "--kernel-profile="+name, "true")
	}
	c.noJobs()
}

// noJobs checks that no refused job exists.
func (c *cluster) noJobs() {
	c.t.Helper()
	if out := c.must("root", "squeue", "--noheader", "--all"); out != "" {
		c.t.Errorf("jobs in the queue:\n%s", out)
	}
}

// One job has one kernel.
func twoProfiles(c *cluster) {
	c.refused("alice", []string{"mitgcm", "quiet", "one profile"},
		"sbatch", "--hold", "--wrap=true", "--kernel-profile=mitgcm", "--kernel-profile=quiet")
	c.refused("alice", []string{"mitgcm@1", "mitgcm", "one profile"},
		"srun", "--hold", "--kernel-profile=mitgcm@1", "--kernel-profile=mitgcm", "true")
	c.refused("alice", []string{"mitgcm", "stock", "one profile"},
		"salloc", "--hold", "--kernel-profile=mitgcm", "--kernel-profile=stock", "true")
	c.refused("alice", []string{"mitgcm,quiet"}, "sbatch", "--hold", "--wrap=true", "--kernel-profile=mitgcm,quiet")
	c.noJobs()

	// A repetition is no contradiction, and the command line takes precedence over the script.
	id := lastLine(c.must("alice", "sbatch", "--parsable", "--hold", "--wrap=true", "--kernel-profile=quiet", "--kernel-profile=quiet"))
	if got := c.job(id)["AdminComment"]; !strings.Contains(got, "quiet requested") {
		c.t.Errorf("job %s: %q", id, got)
	}
	c.must("alice", "scancel", id)
}

// A kernel cannot be shared with other jobs, and a job with one cannot be made
// to share later.
func sharedNodes(c *cluster) {
	for _, options := range [][]string{
		{"--oversubscribe"}, {"--partition=shared"}, {"--partition=main,shared"}, {"--exclusive=user"},
	} {
		argv := append([]string{"sbatch", "--hold", "--wrap=true", "--kernel-profile=mitgcm"}, options...)
		c.refused("alice", []string{"whole nodes"}, argv...)
	}
	c.refused("alice", []string{"whole nodes"}, "srun", "--hold", "--partition=shared", "--kernel-profile=mitgcm", "true")
	c.noJobs()

	id := c.sbatch("alice", "--hold", "--kernel-profile=mitgcm")
	c.refused("alice", nil, "scontrol", "update", "jobid="+id, "partition=shared")
	c.refused("alice", nil, "scontrol", "update", "jobid="+id, "oversubscribe=yes")
	c.refused("alice", nil, "scontrol", "update", "jobid="+id, "reboot=no")
	c.refused("alice", nil, "scontrol", "update", "jobid="+id, "admincomment=kernel-broker: stock requested")
	job := c.job(id)
	if job["Partition"] != "main" || job["OverSubscribe"] != "NO" || job["Reboot"] != "1" ||
		!strings.Contains(job["AdminComment"], "mitgcm requested") {
		c.t.Errorf("job %s: %v", id, job)
	}
	c.must("alice", "scancel", id)

	// Other users' jobs on the shared partition are not affected.
	plain := c.sbatch("bob", "--partition=shared", "-N2")
	c.waitJob(plain, "COMPLETED")
	c.ranOn("bob", plain, "stock", 2)
}

// What the broker accepts is accepted even if the submit host's copy of the catalog is old, damaged or missing; what it
// refuses is refused.
func staleSnapshot(c *cluster) {
	path := c.Path("var/lib/kernel-broker/catalog.snapshot")
	read := func() string {
		text, err := os.ReadFile(path)
		if err != nil {
			c.t.Fatal(err)
		}
		return string(text)
	}
	old := read()
	c.apply("fresh", strings.ReplaceAll(quietProfile, "name: quiet", "name: fresh"))
	c.wait(settleLimit, "the snapshot to have the new profile", func() bool { return strings.Contains(read(), "profile fresh ") })
	current := read()
	defer func() {
		if err := os.WriteFile(path, []byte(current), 0o644); err != nil {
			c.t.Error(err)
		}
	}()
	head, _, _ := strings.Cut(current, "profile fresh")
	for what, text := range map[string]string{
		"stale": old, "truncated": head, "cut in a line": current[:len(current)/2],
		"empty": "", "garbage": "\x00\xff" + strings.Repeat("profile ", 10000), "absent": "-",
		"of another format": strings.Replace(current, "kernel-broker-snapshot 1", "kernel-broker-snapshot 99", 1),
	} {
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			c.t.Fatal(err)
		}
		if text != "-" {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				c.t.Fatal(err)
			}
		}
		for _, name := range []string{"fresh", "fresh@1", "mitgcm"} {
			r := c.answered("alice", "sbatch", "--parsable", "--hold", "--wrap=true", "--kernel-profile="+name)
			if r.Exit != 0 || r.Stderr != "" {
				c.t.Errorf("snapshot %s: %s: exit %d: %s", what, name, r.Exit, r.Stderr)
				continue
			}
			c.must("alice", "scancel", lastLine(r.Stdout))
		}
		c.refused("alice", []string{"nosuch"}, "sbatch", "--hold", "--wrap=true", "--kernel-profile=nosuch")
		c.refused("alice", []string{"fresh", "no version 3"}, "sbatch", "--hold", "--wrap=true", "--kernel-profile=fresh@3")
	}
}
