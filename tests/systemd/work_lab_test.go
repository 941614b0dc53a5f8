// SPDX-License-Identifier: Apache-2.0

//go:build lab

package systemd

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Under its unit's lines the agent verifies a kernel's signature, loads and boots it, and the node's systemd starts
// there with the same units. An unsigned kernel is refused on the way.
func (s *site) anotherKernel(t *testing.T) {
	entry := s.ctl1.must("install -m 0700 -d /root/keys && kernelctl key generate /root/keys/release.pem --passphrase-file -")
	s.n1.put("/etc/kernel-broker/trust.yaml", "0644", "cluster: cluster\nkeys:\n  "+entry)
	s.n1.must("sed -i 's|^  list: .*|  list: /etc/kernel-broker/trust.yaml|' /etc/kernel-broker/agent.yaml && systemctl restart kernel-broker-agent")
	s.n1.until("the agent with a trust list", "kernel-broker-agent status | grep -q 'attested *yes'")

	unsigned := s.submit("--kernel-profile=mitgcm", "true")
	s.ctl1.until("the unsigned kernel's refusal", "scontrol show job "+unsigned+" | grep -q 'AdminComment=.*not signed'")
	t.Log(s.ctl1.must("scontrol show job " + unsigned + " | grep AdminComment; scancel " + unsigned))
	s.slurmdUp()

	s.ctl1.must("kernelctl kernel sign mitgcm@1 --sign-key /root/keys/release.pem --cluster cluster" +
		" --kernel /srv/kernels/mitgcm/bzImage --manifest /srv/kernels/mitgcm/kernel.json")
	s.stepFails()
	s.n1.must(": >/root/steps")
	before := s.n1.must("cat /proc/sys/kernel/random/boot_id")
	job := s.submit("--kernel-profile=mitgcm", "uname -r; while [ ! -e /tmp/go ]; do sleep 1; done")
	s.ctl1.until("the job to run", "squeue -h -j "+job+" -o %T | grep -qx RUNNING")
	release := s.n1.must("uname -r; tr '\\0' ' ' </proc/$(systemctl show -P MainPID slurmd)/cmdline; echo; systemctl is-active kernel-broker-agent slurmd munge dbus; kernel-broker-agent status")
	t.Logf("while job %s runs:\n%s", job, release)
	// Slurm waited for this boot.
	if !strings.Contains(release, "slurmd -D -s -v -b") {
		t.Errorf("slurmd does not claim the boot that Slurm waits for:\n%s", release)
	}
	if !strings.Contains(release, "-mitgcm") || s.n1.must("cat /proc/sys/kernel/random/boot_id") == before {
		t.Errorf("the node did not boot the kernel:\n%s", release)
	}
	// The unit's lines hold on the slim kernel, too.
	s.n1.status(t, "kernel-broker-agent.service", `NoNewPrivs:\t1`, `Seccomp:\t2`)
	s.n1.must("touch /tmp/go")
	s.n1.until("the distribution's kernel", "uname -r | grep -q amd64 && systemctl is-active slurmd")
	s.slurmdUp()
	log := s.n1.must("cat /home/alice/job." + job + "; journalctl -u kernel-broker-agent -o cat | grep -E 'action=(load|fetch)|digests checked|signed' | tail -12")
	t.Log(log)
	if !strings.Contains(log, "-mitgcm") {
		t.Errorf("the job's output is\n%s", log)
	}
	// There and back: a step is done before each kexec.
	if steps := s.n1.must("cat /root/steps"); steps != "away, slurmd is down\naway, slurmd is down" {
		t.Errorf("before two boots the site's steps are\n%s", steps)
	}
	t.Log(s.ctl1.must("kernelctl job show " + job))
}

// siteSteps are units as docs/ops/kexec.md has them; the second fails while there is a /root/busy.
const siteSteps = `set -e
cat >/etc/systemd/system/away.service <<'END'
[Unit]
Conflicts=slurmd.service
Before=slurmd.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'echo "away, slurmd is $(pidof slurmd || echo down)" >>/root/steps'
ExecStop=/bin/sh -c 'echo back >>/root/steps'
[Install]
RequiredBy=kernel-broker-kexec.target
END
cat >/etc/systemd/system/idle.service <<'END'
[Unit]
After=away.service
[Service]
Type=oneshot
ExecStart=/usr/bin/test ! -e /root/busy
[Install]
RequiredBy=kernel-broker-kexec.target
END
systemctl daemon-reload
systemctl enable away idle`

// stepFails: a step of the site before a kexec fails, the node keeps its kernel and is drained. Steps that were done are taken back
// when slurmd starts after all.
func (s *site) stepFails() {
	t := s.n1.t
	t.Helper()
	s.n1.must(siteSteps + "; touch /root/busy")
	job := s.submit("--kernel-profile=mitgcm", "true")
	s.ctl1.until("the step's failure", "scontrol show job "+job+" | grep -q 'AdminComment=.*not ready to leave its kernel'")
	t.Log(s.ctl1.must("scontrol show job " + job + " | grep AdminComment; scancel " + job))
	s.n1.must("rm /root/busy")
	s.ctl1.until("the drain", "sinfo -h -N -o '%T %E' | grep -q 'drain.*not ready to leave its kernel'")
	s.ctl1.must("scontrol update nodename=n1 state=resume")
	s.slurmdUp()
	// Done and not followed by a kexec. The job was cancelled after its first try, or in its second one.
	s.n1.must("systemctl stop slurmd && systemctl start kernel-broker-kexec.target && systemctl start slurmd")
	const tried = "away, slurmd is down\nback\n"
	if steps := s.n1.must("cat /root/steps") + "\n"; strings.ReplaceAll(steps, tried, "") != "" || strings.Count(steps, tried) < 2 {
		t.Errorf("the site's steps are\n%s", steps)
	}
	s.slurmdUp()
}

// submit has alice submit a batch script; it writes to /tmp of the node.
func (m *machine) submit(options, script string) string {
	m.t.Helper()
	return m.must("cd /tmp && runuser -u alice -- sbatch --parsable " + options + " --output=/home/alice/job.%j --wrap " + quote(script))
}

func (s *site) submit(option, script string) string {
	s.ctl1.t.Helper()
	return s.ctl1.submit(option, script)
}

// The collectors' programs are attached under the unit's lines, on a kernel with their requirements, and the job's user
// may read the live figures.
func (s *site) collectors(t *testing.T) {
	job := s.submit("--kernel-profiling=syscalls,io,callgraph,noise",
		"while [ ! -e /tmp/seen ]; do ls -lR /usr/lib/systemd >/dev/null; dd if=/dev/zero of=/tmp/zero bs=4k count=500; done")
	read := " -- perl -MIO::Socket::UNIX -e '$s = IO::Socket::UNIX->new(\"/run/kernel-broker/jobs/" + job + ".sock\") or exit 1; print scalar <$s>'"
	s.n1.until("the job's figures", "runuser -u alice"+read+" | grep syscalls")
	if got := s.n1.run("runuser -u daemon" + read).out; got != "" {
		t.Errorf("another user reads the job's figures: %s", got)
	}
	s.n1.must("touch /tmp/seen")
	s.ended(job)
	s.ctl1.until("the run", "kernelctl run list | grep -qE 'complete|partial|failed'")
	shown := s.ctl1.must("kernelctl run list; kernelctl run show 1; kernelctl run report 1 | head -60")
	t.Log(shown)
	if !strings.Contains(shown, "complete") {
		t.Errorf("the run is not complete:\n%s\n%s", shown, s.n1.must("journalctl -u kernel-broker-agent -b -o cat | tail -20"))
	}
}

// jobEnds waits until a job has ended; Slurm forgets it some minutes later.
func (m *machine) jobEnds(job string) {
	m.t.Helper()
	m.until("the end of job "+job, `left=$(squeue -h -j `+job+` -t PD,CF,R,CG,S 2>&1) && test -z "$left" || echo "$left" | grep 'Invalid job id'`)
}

func (s *site) ended(job string) {
	s.ctl1.t.Helper()
	s.ctl1.jobEnds(job)
}

// If the agent starts slurmd itself, the drop-in for that removes the agent's restrictions from jobs.
func (s *site) slurmdAsChild(t *testing.T) {
	lift, err := os.ReadFile(filepath.Join(repo, "ansible/roles/agent/files/slurmd-child.conf"))
	if err != nil {
		t.Fatal(err)
	}
	// Without its mark the agent knows of no slurmd in this boot.
	s.n1.must("systemctl stop kernel-broker-agent slurmd && rm -rf /etc/systemd/system/slurmd.service.d /run/kernel-broker/slurmd.mark")
	s.n1.put("/etc/systemd/system/kernel-broker-agent.service.d/slurmd-child.conf", "0644", string(lift))
	s.n1.must(`sed -i -e 's|^  start: .*|  start: [/usr/sbin/slurmd, -b]|' -e 's|^  first_start: .*|  first_start: [/usr/sbin/slurmd]|' \
	-e 's|^  stop: .*|  stop: []|' /etc/kernel-broker/agent.yaml
systemctl daemon-reload && systemctl start kernel-broker-agent`)
	s.n1.until("slurmd", "test -s /run/slurmd.pid && kill -0 $(cat /run/slurmd.pid)")
	// This start reports a boot, after a kexec that Slurm did not request.
	s.ctl1.until("n1 to be idle", "sinfo -h -o %T | grep -qx idle || { scontrol update nodename=n1 state=resume; false; }")
	job := s.submit("", "cat /proc/self/status /proc/self/limits; touch /home/alice/from-the-job")
	s.ended(job)
	said := s.n1.must("ls -l /home/alice/from-the-job; cat /home/alice/job." + job)
	for _, want := range []string{`CapBnd:\t000001ffffffffff`, `NoNewPrivs:\t0`, `Seccomp:\t0`, `Max locked memory +\S+ +unlimited +bytes *`} {
		if !regexp.MustCompile(`(?m)^` + want + `$`).MatchString(said) {
			t.Errorf("a job has no %q in\n%s", want, said)
		}
	}
}

// Keys and tokens are in no process's arguments or environment, a job's
// included, in no journal and no log.
func (s *site) secrets(t *testing.T) {
	const canary = "kb-canary-4711"
	job := s.submit("--export=ALL,KB_CANARY="+canary, "logger "+canary+"; env >/tmp/env; while [ ! -e /tmp/end ]; do sleep 1; done")
	s.n1.until("the job's environment", "test -s /tmp/env")
	s.ctl1.must("logger " + canary)
	secrets := map[string]string{"a token": s.ctl1.must("cut -d. -f2 /root/n1.token | base64 -w0")}
	for name, where := range map[string]struct {
		on   *machine
		path string
	}{
		"the store's key": {s.ctl1, "/var/lib/kernel-broker/store.key"},
		"the node's key":  {s.n1, "/var/lib/kernel-broker/tls/node.pem"},
		"MUNGE's key":     {s.ctl1, "/etc/munge/munge.key"},
		"the signing key": {s.ctl1, "/root/keys/release.pem"},
	} {
		secrets[name] = where.on.must("base64 -w0 " + where.path)
	}
	var lines, names []string
	for name, text := range secrets {
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, pattern := range patterns(string(raw)) {
			lines, names = append(lines, hex.EncodeToString([]byte(pattern))), append(names, name)
		}
	}
	lines, names = append(lines, hex.EncodeToString([]byte(canary))), append(names, "the canary")
	for _, m := range []*machine{s.ctl1, s.n1} {
		m.put("/root/patterns", "0600", strings.Join(lines, "\n"))
		found := m.must(asProbe + "=search PROBE_PATTERNS=/root/patterns /usr/local/libexec/probe")
		canaries := map[string]bool{}
		for line := range strings.Lines(found) {
			var n int
			if _, err := fmt.Sscanf(line, "pattern %d is in ", &n); err != nil {
				continue
			}
			_, place, _ := strings.Cut(strings.TrimSpace(line), " is in ")
			if names[n] != "the canary" {
				t.Errorf("%s: %s is in %s", m.name, names[n], place)
				continue
			}
			if strings.HasPrefix(place, "/proc/") {
				place = "/proc" + place[strings.LastIndex(place, "/"):]
			}
			canaries[place] = true
		}
		t.Logf("%s: %d patterns, %s; the canary is in %v", m.name, len(lines), strings.SplitN(found, "\n", 2)[0], canaries)
		if !canaries["the journal"] || m == s.n1 && !canaries["/proc/environ"] {
			t.Errorf("%s: the search does not see what is there: %v", m.name, canaries)
		}
	}
	s.n1.must("touch /tmp/end")
	s.ended(job)
}

// patterns are the forms of a secret: the lines and header of a PEM private key, and other secrets plain, in base64 and
// in hexadecimal digits.
func patterns(secret string) (forms []string) {
	inside := false
	for line := range strings.Lines(secret) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "-----BEGIN") && strings.Contains(line, "PRIVATE"):
			inside = true
			forms = append(forms, line)
		case strings.HasPrefix(line, "-----END"):
			inside = false
		case inside && len(line) >= 16:
			forms = append(forms, line)
		}
	}
	if forms != nil {
		return forms
	}
	// The middle, so that line ends and base64 alignment do not matter.
	raw := strings.TrimSpace(secret)
	if len(raw) < 24 {
		return []string{raw}
	}
	forms = []string{raw[:24], hex.EncodeToString([]byte(raw[:24]))}
	for shift := range 3 {
		forms = append(forms, base64.RawStdEncoding.EncodeToString([]byte(raw[shift:shift+18])))
	}
	return forms
}
