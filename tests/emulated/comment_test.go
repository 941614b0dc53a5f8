// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package emulated

import (
	"strings"
	"testing"
)

// grants is a site's own job_submit.lua, which keeps a job's grant in its AdminComment.
const grants = `dofile("/etc/slurm/kernel_broker.lua")
function slurm_job_submit(job_desc, part_list, submit_uid)
	if job_desc.name == "granted" then job_desc.admin_comment = "site:grant=4711" end
	return kernel_broker.submit(job_desc, part_list, submit_uid)
end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
	return kernel_broker.modify(job_desc, job_rec, part_list, modify_uid)
end
return slurm.SUCCESS
`

// statistics does what Jobstats does in EpilogSlurmctld: it stores a job's summary when slurmdbd knows that it has ended.
const statistics = `#!/bin/bash
/opt/kernel-broker/libexec/epilog-slurmctld
code=$?
[ "$SLURM_JOB_NAME" != unmended ] || exit "$code"
until [ -n "$(sacct -n -X -P -j "$SLURM_JOB_ID" -S 2020-01-01 -o end | grep -v Unknown)" ]; do sleep 0.2; done
sacctmgr -i update job where jobid="$SLURM_JOB_ID" set AdminComment=JS1:H4sI
exit "$code"
`

// comment is a job's AdminComment, of any length.
func (s *Trial) comment(id string) string {
	s.T.Helper()
	return strings.TrimSpace(s.Must("root", "squeue", "--noheader", "--states=all", "--jobs="+id, "--Format=admin_comment:9000"))
}

// hasComment waits for a job's AdminComment.
func (s *Trial) hasComment(id, want string) {
	s.T.Helper()
	s.Wait(Limit, "the comment "+want, func() bool { return s.comment(id) == want }, func() string { return s.comment(id) })
}

// profiled requires a profiling run of a job.
func (s *Trial) profiled(id string) {
	s.T.Helper()
	if list := s.Must("root", "kernelctl", "run", "list"); !strings.Contains(list, id) {
		s.T.Errorf("job %s is not profiled:\n%s", id, list)
	}
}

func runsOn(kernel string) string {
	return "kernel-broker: runs on " + kernel + "@1, kernel " + KernelNamed(kernel).Release
}

// The AdminComment is the site's: whoever writes it first or last, the words of others stay, and what a user requested at
// submit does not hang on them.
func TestAdminCommentOfTheSite(t *testing.T) {
	t.Parallel()
	s := Start(t, nil)
	s.OK(write(s.Path("etc/slurm/kernel_broker.lua"), s.Must("root", "cat", "/etc/slurm/job_submit.lua"), 0o644))
	s.OK(write(s.Path("etc/slurm/job_submit.lua"), grants, 0o644))

	// The site writes before us.
	granted := s.Sbatch("alice", "held", "--hold", "--job-name=granted", "-N1", "--nodelist=n1", "--kernel-profile=mitgcm")
	s.hasComment(granted, "site:grant=4711 | kernel-broker: mitgcm requested")
	s.Must("root", "scontrol", "release", granted)
	s.hasComment(granted, "site:grant=4711 | "+runsOn("mitgcm"))
	s.LetGo("alice", granted)
	s.WaitJob(granted, "COMPLETED")
	s.hasComment(granted, "site:grant=4711 | "+runsOn("mitgcm"))

	// The site writes after us, and more than squeue's usual column holds.
	long := "JS1:" + strings.Repeat("H4sI", 1000)
	late := s.Sbatch("alice", "held", "--hold", "--no-requeue", "-N1", "--nodelist=n2", "--kernel-profile=lammps", "--kernel-profiling=io")
	s.Must("root", "scontrol", "update", "jobid="+late, "admincomment="+long)
	s.hasComment(late, long+" | kernel-broker: lammps requested; profiling=io; norequeue")
	s.Must("root", "scontrol", "release", late)
	s.WaitJob(late, "RUNNING")
	s.Wait(Limit, "--no-requeue", func() bool { return s.Job(late)["Requeue"] == "0" }, func() string { return s.comment(late) })
	s.hasComment(late, long+" | "+runsOn("lammps")+"; profiling=io")
	s.profiled(late)
	s.Must("root", "scontrol", "update", "nodename=n2", "state=down", "reason=power")
	s.WaitJob(late, "NODE_FAIL")
	if restarts := s.Job(late)["Restarts"]; restarts != "0" {
		t.Errorf("job %s with --no-requeue was started %s times more", late, restarts)
	}
	s.Must("root", "scontrol", "update", "nodename=n2", "state=resume")

	// A job without a profile.
	plain := s.Sbatch("alice", "held", "--hold", "-N1", "--nodelist=n3", "--kernel-profiling=io")
	s.Must("root", "scontrol", "update", "jobid="+plain, "admincomment=theirs")
	s.hasComment(plain, "theirs | kernel-broker: stock requested; profiling=io")
	s.Must("root", "scontrol", "release", plain)
	s.WaitJob(plain, "RUNNING")
	s.profiled(plain)
	s.LetGo("alice", plain)
	s.WaitJob(plain, "COMPLETED")
	s.Settled(Limit)
}

// Jobstats stores its summary after a job's end, and its repair later where there is none: nothing of ours comes after either,
// and a plain job's field is empty.
func TestJobstats(t *testing.T) {
	t.Parallel()
	s := Start(t, func(o *Options) { o.Accounting = true })
	s.OK(write(s.Path("emulated/statistics"), statistics, 0o755))
	s.edit("etc/slurm/slurm.conf", "EpilogSlurmctld="+hooks+"/epilog-slurmctld", "EpilogSlurmctld=/emulated/statistics")
	s.Must("root", "scontrol", "reconfigure")
	// sacctmgr 22.05 stores lower case.
	stored := func(id, field string) string {
		return s.Must("root", "sacct", "-n", "-X", "-P", "-j", id, "-S", "2020-01-01", "-o", field)
	}
	for _, c := range []struct{ name, own, profile, want string }{
		{"summary", "JS1:H4sI", "mitgcm", "JS1:H4sI"}, {"plain", "JS1:H4sI", "", "JS1:H4sI"},
		{"unmended", "", "mitgcm", runsOn("mitgcm")}, {"unmended", "", "", ""},
	} {
		args := []string{"--job-name=" + c.name, "-N1", "--nodelist=n1"}
		if c.profile != "" {
			args = append(args, "--kernel-profile="+c.profile)
		}
		id := s.Sbatch("alice", "held", args...)
		s.WaitJob(id, "RUNNING")
		if c.profile != "" {
			s.hasComment(id, runsOn(c.profile))
		}
		s.LetGo("alice", id)
		s.WaitJob(id, "COMPLETED")
		s.Wait(Limit, "slurmdbd", func() bool {
			return stored(id, "state") == "COMPLETED" && strings.EqualFold(stored(id, "admincomment"), c.want)
		}, func() string { return stored(id, "admincomment") })
		if c.own == "" {
			s.Must("root", "sacctmgr", "-i", "update", "job", "where", "jobid="+id, "set", "AdminComment=JS1:mended")
		}
		s.Settled(Limit)
		if got := stored(id, "admincomment"); !strings.HasPrefix(strings.ToUpper(got), "JS1:") {
			t.Errorf("%s %s: after the return it has %q", c.name, c.profile, got)
		}
	}
}
