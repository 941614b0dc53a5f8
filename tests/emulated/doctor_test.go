// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package emulated

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// diagnosis is what kernelctl doctor prints.
type diagnosis struct {
	Findings []struct{ Check, Object, What, Remedy string }
	Passed   int
	Checks   []struct {
		Check, Outcome string
		Why            []string
	}
}

// found are the findings as CHECK OBJECT.
func (d diagnosis) found() []string {
	var list []string
	for _, f := range d.Findings {
		list = append(list, f.Check+" "+f.Object)
	}
	return list
}

func (d diagnosis) outcome(check string) string {
	for _, c := range d.Checks {
		if c.Check == check {
			return c.Outcome
		}
	}
	return "no such check"
}

// doctor runs kernelctl doctor on the front-end, or on a node if it is not nil. TLS is off in these clusters, and jobs have no
// cgroups.
func (s *Trial) doctor(n *Node, arguments ...string) diagnosis {
	s.T.Helper()
	argv := append([]string{"kernelctl", "doctor", "--ignore", "tls", "--ignore", "job-cgroups", "--ignore", "collector-cgroups", "-o", "json"}, arguments...)
	var r Result
	var err error
	if n == nil {
		r = s.Try("root", argv...)
	} else {
		// A compute node has neither broker.yaml nor client.yaml.
		script := `cp /etc/kernel-broker/agent.yaml /tmp/agent.yaml && mount -t tmpfs tmpfs /etc/kernel-broker && exec "$@" --agent-file /tmp/agent.yaml`
		r, err = n.Exec(s.Ctx, append([]string{"unshare", "--mount", "sh", "-c", script, "sh"}, argv...)...)
		s.OK(err)
	}
	var d diagnosis
	if err := json.Unmarshal([]byte(r.Stdout), &d); err != nil {
		s.T.Fatalf("kernelctl doctor: exit %d, %v\n%s%s", r.Exit, err, r.Stdout, r.Stderr)
	}
	if (r.Exit == 1) != (len(d.Findings) > 0) || r.Exit > 1 {
		s.T.Errorf("exit %d with %d findings: %s", r.Exit, len(d.Findings), r.Stderr)
	}
	for _, f := range d.Findings {
		if f.What == "" || f.Remedy == "" {
			s.T.Errorf("a finding without words: %+v", f)
		}
	}
	return d
}

// finds waits until the doctor finds exactly this: what slurmctld and the broker are told reaches them in a moment.
func (s *Trial) finds(n *Node, want ...string) {
	s.T.Helper()
	slices.Sort(want)
	var got []string
	ok := s.Within(30*time.Second, func() bool {
		got = s.doctor(n).found()
		slices.Sort(got)
		return slices.Equal(got, want)
	})
	if !ok {
		s.T.Errorf("doctor finds\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// edit replaces a text in a file of the cluster, which must be there.
func (s *Trial) edit(file string, pairs ...string) (undo func()) {
	s.T.Helper()
	before, err := os.ReadFile(s.Path(file))
	s.OK(err)
	text := string(before)
	for pair := range slices.Chunk(pairs, 2) {
		if !strings.Contains(text, pair[0]) {
			s.T.Fatalf("%s has no %q", file, pair[0])
		}
		text = strings.ReplaceAll(text, pair[0], pair[1])
	}
	s.OK(write(s.Path(file), text, 0o644))
	return func() { s.OK(write(s.Path(file), string(before), 0o644)) }
}

// siteScript is a job_submit.lua that does nothing for the product.
const siteScript = `function slurm_job_submit(d, p, u) return slurm.SUCCESS end
function slurm_job_modify(d, r, p, u) return slurm.SUCCESS end
return slurm.SUCCESS
`

// A healthy cluster, and what an administrator may get wrong on the front-end and on a node.
func TestDoctor(t *testing.T) {
	t.Parallel()
	s := Start(t, func(o *Options) {
		o.Broker = map[string]any{"cluster": "cluster"} // the default, which a node takes without client.yaml
		o.Agent = map[string]any{"reboot": map[string]any{"command": []string{"/emulated/reboot"}}}
		o.ResumeTimeout = 360 * time.Second
		o.SchedulerParameters = append(o.SchedulerParameters, "requeue_on_resume_failure")
	})
	node := s.Node("n1")

	s.finds(nil)
	s.finds(node)
	d := s.doctor(nil)
	for check, want := range map[string]string{
		"plugstack": "passed", "plugin-version": "passed", "prolog-slurmctld": "passed", "job-submit-script": "passed", "snapshot": "passed", "clocks": "passed",
		"versions": "passed", "hook-counters": "passed", "database-room": "passed", "kexec": "not possible", "epilog": "not possible", "node-certificates": "not possible",
	} {
		if got := d.outcome(check); got != want {
			t.Errorf("on the front-end, %s: %s, want %s", check, got, want)
		}
	}
	d = s.doctor(node)
	for check, want := range map[string]string{
		"plugstack": "passed", "epilog": "passed", "kexec": "passed", "agent-answers": "passed", "agent-port": "passed", "slurmd-unit": "passed",
		"prolog-slurmctld": "not possible", "broker-file": "not possible",
	} {
		if got := d.outcome(check); got != want {
			t.Errorf("on a node, %s: %s, want %s", check, got, want)
		}
	}
	if r := s.Try("root", "kernelctl", "doctor"); r.Exit != 1 || !strings.Contains(r.Stdout, "TLS is off") || !strings.Contains(r.Stdout, "remedy: ") {
		t.Errorf("without --ignore: exit %d\n%s%s", r.Exit, r.Stdout, r.Stderr)
	}
	if r := s.Try("root", "kernelctl", "doctor", "--ignore", "tsl"); r.Exit != 2 {
		t.Errorf("a check that there is not: exit %d\n%s", r.Exit, r.Stderr)
	}
	if d := s.Try("alice", "kernelctl", "doctor", "--ignore", "tls", "--ignore", "job-cgroups", "--all"); d.Exit != 0 || !strings.Contains(d.Stdout, "not possible") {
		t.Errorf("a user's: exit %d\n%s%s", d.Exit, d.Stdout, d.Stderr)
	}

	// plugstack.conf, the hooks' folder, and a configuration of Slurm's that lost some lines.
	plugstack := s.edit("etc/slurm/plugstack.conf", "required ", "optional ")
	s.Must("root", "chown", "root", "/var/lib/kernel-broker/hook")
	s.finds(nil, "plugstack /etc/slurm/plugstack.conf", "hook-counters /etc/kernel-broker/client.yaml")
	plugstack()
	s.Must("root", "chown", "slurm", "/var/lib/kernel-broker/hook")
	s.edit("etc/slurm/slurm.conf", "nohold_on_prolog_fail", "bf_continue", "ResumeTimeout=360", "ResumeTimeout=60", "PrologFlags=Alloc,DeferBatch", "PrologFlags=Alloc",
		"EpilogSlurmctld="+hooks+"/epilog-slurmctld", "EpilogSlurmctld=/emulated/site-epilog", "RebootProgram="+hooks+"/reboot\n", "",
		"PrologSlurmctld="+hooks+"/prolog-slurmctld", "PrologSlurmctld=/emulated/site-prolog")
	for _, name := range []string{"prolog", "epilog"} {
		s.OK(write(s.Path("emulated/site-"+name), "#!/bin/sh\n"+hooks+"/"+name+"-slurmctld || exit\n", 0o755))
	}
	s.OK(s.Slurmctld().Restart(s.Ctx, syscall.SIGTERM))
	broken := []string{"hold-on-prolog-fail nohold_on_prolog_fail", "resume-timeout ResumeTimeout", "prolog-flags DeferBatch", "reboot-program RebootProgram"}
	s.finds(nil, broken...)
	s.OK(os.Remove(s.Path("emulated/site-epilog"))) // newer slurmctlds do not start without
	broken = append(broken, "epilog-slurmctld EpilogSlurmctld")
	s.OK(write(s.Path("emulated/site-prolog"), "#!/bin/sh\n# "+hooks+"/prolog-slurmctld is not needed\n", 0o755))
	s.OK(write(s.Path("etc/slurm/job_submit.lua"), siteScript, 0o644))
	broken = append(broken, "prolog-slurmctld PrologSlurmctld", "job-submit-script /etc/slurm/job_submit.lua")
	s.finds(nil, broken...)

	// A node, and the catalog.
	s.OK(node.StopAgent(s.Ctx))
	broken = append(broken, "agents-away n1")
	s.finds(nil, broken...)
	// The node's snapshot is its agent's.
	s.Must("root", "kernelctl", "profile", "quarantine", "mitgcm@1", "--reason", "it panics")
	broken = append(broken, "quarantine mitgcm@1", "default-version mitgcm")
	s.finds(nil, broken...)
	s.OK(os.MkdirAll(s.Path("etc/default"), 0o755))
	s.OK(write(s.Path("etc/default/slurmd"), "SLURMD_OPTIONS=\"-M -b\"\n", 0o644))
	s.edit("etc/kernel-broker/agent.yaml", "/emulated/kexec", "/emulated/kexec-tools")
	onNode := append(slices.DeleteFunc(slices.Clone(broken), func(f string) bool {
		return strings.Contains(f, "slurmctld") || strings.Contains(f, "job_submit")
	}), "snapshot /var/lib/kernel-broker/catalog.snapshot", "agent-answers n1", "slurmd-options /etc/default/slurmd", "kexec n1")
	s.finds(node, onNode...)

	// Neither slurmctld nor a broker.
	s.OK(s.Slurmctld().Stop(s.Ctx))
	s.OK(s.Broker().Stop(s.Ctx))
	s.finds(nil, "slurm-answers slurmctld", "broker-answers unix:///run/kernel-broker/broker.sock", "agent-port "+frontAddress+":7440", "job-submit-script /etc/slurm/job_submit.lua")
}

// setup slurm finds in the files of a real site what an administrator left out, and nothing else.
func TestSetupSlurm(t *testing.T) {
	t.Parallel()
	s := Start(t, func(o *Options) { o.Nodes = 1 })
	text, err := os.ReadFile(s.Path("etc/slurm/slurm.conf"))
	s.OK(err)
	lacks := func(conf string) (list []string) {
		t.Helper()
		for line := range strings.Lines(s.Try("root", "kernelctl", "setup", "slurm", "--slurm-conf", conf).Stdout) {
			if !strings.HasPrefix(line, "#") {
				list = append(list, strings.TrimSpace(line))
			}
		}
		return list
	}
	// These clusters keep no jobs in cgroups.
	all := lacks("/etc/slurm/slurm.conf")
	own := slices.DeleteFunc(slices.Clone(all), func(line string) bool {
		return strings.HasPrefix(line, "ProctrackType=") || strings.HasPrefix(line, "CgroupPlugin=")
	})
	if len(own) != 0 {
		t.Errorf("a whole site lacks %q", own)
	}
	next := ""
	for line := range strings.Lines(string(text)) {
		if key, _, _ := strings.Cut(line, "="); key != "EpilogSlurmctld" && key != "JobSubmitPlugins" {
			next += line
		}
	}
	s.OK(os.WriteFile(s.Path("etc/slurm/next.conf"), []byte(next), 0o644))
	got := slices.DeleteFunc(lacks("/etc/slurm/next.conf"), func(line string) bool { return slices.Contains(all, line) })
	if want := []string{"EpilogSlurmctld=/usr/libexec/kernel-broker/epilog-slurmctld", "JobSubmitPlugins=lua"}; !slices.Equal(got, want) {
		t.Errorf("lines %q, want %q", got, want)
	}
}
