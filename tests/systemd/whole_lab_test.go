// SPDX-License-Identifier: Apache-2.0

//go:build lab

package systemd

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// six are a cluster without a single point of failure but login1, which also serves the controllers' disk by NFS and has
// slurmdbd and the third member of etcd.
var six = []host{
	{name: "ctl1", address: "10.77.0.1", memory: 1280, groups: []string{"slurm_controller", "kernel_broker_etcd"}},
	{name: "ctl2", address: "10.77.0.2", memory: 1280, groups: []string{"slurm_controller", "kernel_broker_etcd"}},
	{name: "login1", address: "10.77.0.3", memory: 1280, groups: []string{"slurm_dbd", "slurm_submit", "kernel_broker_etcd"}},
	{name: "n1", address: "10.77.0.11", memory: 1024, groups: []string{"slurm_nodes"}},
	{name: "n2", address: "10.77.0.12", memory: 1024, groups: []string{"slurm_nodes"}},
	{name: "n3", address: "10.77.0.13", memory: 1024, groups: []string{"slurm_nodes"}},
}

// wholeSite is the six machines.
type wholeSite struct {
	*bareSite
	ctl1, ctl2, login *machine
	nodes             []*machine
	older, newer      string // packages of two versions
}

// TestWholeSite installs a site of six bare machines by the Ansible collection, and does to it what its administrators and
// its life do. Each step continues the one before it. With KB_SITE it goes on with the machines of `make site-up`.
func TestWholeSite(t *testing.T) {
	var s *wholeSite
	if held := os.Getenv("KB_SITE"); held != "" {
		s = heldSite(t, held)
	} else {
		s = newWholeSite(t)
		defer s.hold(t)
	}
	steps(t, s.machines,
		step{"from bare hosts", func(t *testing.T) {
			s.isBare(t)
			s.mountDisk(t)
			s.install(t)
			s.well()
		}},
		step{"the second run changes nothing", func(t *testing.T) { s.unchanged(t, "site.yml", "--diff") }},
		step{"check mode finds nothing", func(t *testing.T) { s.unchanged(t, "site.yml", "--check", "--diff") }},
		step{"what Slurm and the broker say", func(t *testing.T) { s.play(t, "verify.yml") }},
		step{"what the inventory says", s.inventoryInForce},
		step{"a job on two nodes", func(t *testing.T) {
			jobOnItsKernel(t, s.login, s.nodes[0], s.nodes[1])
			misspelt(t, s.login)
		}},
		step{"the first controller is lost", s.loseController},
		step{"a profiling run", s.profile},
		step{"an upgrade under twenty jobs", s.upgrade},
		step{"back to the version before", s.rollback},
		step{"another authority", s.rotate},
		step{"a node leaves and comes back", s.leave},
		step{"each host reboots", s.reboots},
	)
}

// newWholeSite starts the machines.
func newWholeSite(t *testing.T) *wholeSite {
	t.Helper()
	folder := t.TempDir()
	key := filepath.Join(folder, "release.pem")
	entry, err := exec.Command(filepath.Join(repo, "build/bin/kernelctl"), "key", "generate", key, "--passphrase-file", "-").Output()
	if err != nil {
		t.Fatalf("%v (make build)", err)
	}
	var keys []any
	if err := yaml.Unmarshal(entry, &keys); err != nil || len(keys) != 1 {
		t.Fatalf("%v: the key's entry is\n%s", err, entry)
	}
	older, newer := product(t), nextProduct(t) // before machines take the processors
	vars := wholeVars(patientCatalog(t, folder), key, keys)
	vars["kernel_broker_packages"] = older
	return asWhole(newBareSite(t, six, 3*limit, vars), older, newer)
}

// heldSite is the site of six machines that another process holds.
func heldSite(t *testing.T, file string) *wholeSite {
	t.Helper()
	b := heldBareSite(t, file, six, 3*limit)
	older, ok := b.vars["kernel_broker_packages"].(string)
	if !ok {
		t.Fatalf("%s names no packages", b.inventoryFile())
	}
	return asWhole(b, older, nextProduct(t))
}

// nextProduct packs what product has built as the next version, and returns the packages' folder.
func nextProduct(t *testing.T) string {
	t.Helper()
	top, err := filepath.Abs(repo)
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(t.TempDir(), "newer")
	command(t, "sh", "-c", pack, "pack", top, filepath.Join(top, "build/packages/root"), "v0.2.0", folder)
	return folder
}

// asWhole is the site of six bare machines, with packages of the version that it has and of the next one.
func asWhole(b *bareSite, older, newer string) *wholeSite {
	return &wholeSite{bareSite: b, older: older, newer: newer,
		ctl1: b.on("ctl1"), ctl2: b.on("ctl2"), login: b.on("login1"),
		nodes: []*machine{b.on("n1"), b.on("n2"), b.on("n3")}}
}

// wholeVars are in the inventory: the site's policy, trust list and signing key, and limits far above what emulation on
// a loaded host takes, so that what fails is not the time.
func wholeVars(catalog, key string, keys []any) map[string]any {
	type m = map[string]any
	everybody, alice := []m{{"everybody": true}}, []m{{"users": []string{"alice"}}}
	return m{
		"catalog_folder":      catalog,
		"catalog_sign_key":    key,
		"kernel_broker_trust": m{"cluster": "lab", "keys": keys},
		"broker_policy": m{
			"administrators": m{"users": []string{"root"}, "from": []string{"local", six[0].address, six[1].address}},
			"default":        m{"use": everybody},
			"profiles":       m{"mitgcm": m{"use": alice}},
		},
		"slurm_conf": m{
			"StateSaveLocation": "/srv/slurm", "ReturnToService": 2, "MinJobAge": 86400,
			"SlurmctldTimeout": 180, "SlurmdTimeout": 1800, "MessageTimeout": 100, "BatchStartTimeout": 600,
			"ResumeTimeout": 1800, "PrologEpilogTimeout": 2400,
		},
		"etcd_config": m{"ETCD_HEARTBEAT_INTERVAL": 500, "ETCD_ELECTION_TIMEOUT": 5000},
		"broker_config": m{
			"slurm": m{"limit": "60s"},
			"switch": m{"limit": "30m", "load_limit": "10m", "agent_limit": "5m", "stock_timeout": "10m",
				"reboot_timeout": "20m", "reset_grace": "20m"},
			"runs": m{"standby": "5m", "deliver_limit": "20m"},
		},
		"broker_client_config": m{"broker_wait": "5m", "prolog_limit": "35m", "profiling_wait": "330s"},
		"agent_config": m{
			"slurmd": m{"start_timeout": "5m", "stop_timeout": "2m"},
			"kexec":  m{"before_timeout": "5m"},
		},
		"agent_renew_limit": 900,
	}
}

// patientCatalog is the catalog's profiles with time for slow boots.
func patientCatalog(t *testing.T, folder string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(repo, "catalog/profiles/*.yaml"))
	if err != nil || len(found) == 0 {
		t.Fatalf("profiles %q, %v", found, err)
	}
	for _, path := range found {
		text := string(contents(t, path))
		lines := strings.SplitAfter(text, "\n")
		for i, line := range lines {
			if strings.HasPrefix(line, "boot_timeout:") {
				lines[i] = "boot_timeout: 10m\n"
			}
		}
		write(t, filepath.Join(folder, "catalog/profiles", filepath.Base(path)), strings.Join(lines, ""), 0o644)
	}
	return filepath.Join(folder, "catalog")
}

// together runs a script on several machines at a time.
func together(t *testing.T, script string, machines ...*machine) {
	t.Helper()
	failed := make([]error, len(machines))
	var wait sync.WaitGroup
	for i, m := range machines {
		wait.Go(func() {
			r, err := m.try(script, m.limit)
			if err == nil && r.exit != 0 {
				err = fmt.Errorf("exit %d: %s%s", r.exit, r.out, r.err)
			}
			if err != nil {
				failed[i] = fmt.Errorf("%s: %w", m.name, err)
			}
		})
	}
	wait.Wait()
	if err := errors.Join(failed...); err != nil {
		t.Fatalf("%v\nof\n%s", err, script)
	}
}

const apt = "set -e; export DEBIAN_FRONTEND=noninteractive; apt-get -qq update; apt-get -qq -y --no-install-recommends install "

// mountDisk is the site's own part before site.yml: a disk that the controllers share (docs/ops/install.md, Backup
// controllers).
func (s *wholeSite) mountDisk(t *testing.T) {
	together(t, apt+`nfs-kernel-server
mkdir -p /srv/site/slurm /etc/nfs.conf.d
echo '/srv/site 10.77.0.0/24(rw,sync,no_root_squash,no_subtree_check)' >/etc/exports
# Locks of a host that is lost are free after this time.
printf '[nfsd]\nlease-time=30\ngrace-time=30\n' >/etc/nfs.conf.d/site.conf
systemctl restart nfs-server
exportfs -ra
exportfs | grep -q /srv/site`, s.login)
	const options = "hard,_netdev,retry=30,actimeo=1,lookupcache=positive,x-systemd.mount-timeout=35min 0 0"
	together(t, apt+`nfs-common
mkdir -p /srv/slurm
cat >>/etc/fstab <<'END'
login1:/srv/site/slurm /srv/slurm nfs4 `+options+`
END
systemctl daemon-reload
mount /srv/slurm`, s.ctl1, s.ctl2)
}

// acts reports whether the machine's broker is the one that acts.
func (s *wholeSite) acts(m *machine) bool {
	m.t.Helper()
	status := m.must("systemctl show -P StatusText kernel-broker")
	if !strings.HasPrefix(status, "serves agents on ") && !strings.HasPrefix(status, "waits: another broker acts") {
		m.t.Logf("%s: the broker's status is %q", m.name, status)
	}
	return strings.HasPrefix(status, "serves agents on ")
}

// well waits until the site is as its administrators want it: both controllers answer, a broker acts and is healthy, the
// other one waits, and all nodes are free.
func (s *wholeSite) well() {
	s.login.t.Helper()
	s.login.until("both slurmctlds", `test "$(scontrol ping | grep -c ' is UP')" = 2`)
	s.login.until("a healthy broker", "kernelctl health")
	for _, m := range []*machine{s.ctl1, s.ctl2} {
		m.until("the broker to act or to wait", "systemctl show -P StatusText kernel-broker | grep -qE '^(serves agents on|waits: another broker acts)'")
		m.until("etcd", "systemctl is-active etcd")
	}
	for end := time.Now().Add(s.login.limit); s.acts(s.ctl1) == s.acts(s.ctl2); time.Sleep(2 * time.Second) {
		if time.Now().After(end) {
			s.login.t.Fatal("not one broker of the two acts")
		}
	}
	home(s.login, s.nodes...)
}

// inventoryInForce checks that the policy, the trust list and the profiles of the inventory are what hosts go by.
func (s *wholeSite) inventoryInForce(t *testing.T) {
	s.ctl1.must("kernelctl policy test alice use mitgcm")
	if r := s.ctl1.run("kernelctl policy test daemon use mitgcm"); r.exit == 0 || !strings.Contains(r.out, "denied") {
		t.Errorf("daemon may use mitgcm: exit %d, %s%s", r.exit, r.out, r.err)
	}
	list := s.ctl1.must("sha256sum </etc/kernel-broker/trust.yaml")
	for _, m := range append([]*machine{s.ctl2}, s.nodes...) {
		if got := m.must("sha256sum </etc/kernel-broker/trust.yaml"); got != list {
			t.Errorf("%s has another trust list than ctl1", m.name)
		}
	}
	profiles := s.login.must("runuser -u alice -- kernelctl profile list")
	if !strings.Contains(profiles, "mitgcm") || !strings.Contains(profiles, "stock") {
		t.Errorf("the profiles are\n%s", profiles)
	}
	if found := s.ctl1.run("ls /run/kernel-broker-sign").out; found != "" {
		t.Errorf("the signing key is still on ctl1: %s", found)
	}
}

// loseController stops the first controller's host under a job. The second one takes over, the job goes on, and the next
// one gets its kernel. The first one comes back by a reset, as after a power cut.
func (s *wholeSite) loseController(t *testing.T) {
	if !s.acts(s.ctl1) {
		s.ctl2.must("systemctl restart kernel-broker")
		s.ctl1.until("the broker to act", "systemctl show -P StatusText kernel-broker | grep -q '^serves agents on '")
		s.well()
	}
	n1, n2 := s.nodes[0], s.nodes[1]
	before := n1.must(bootID)
	job := started(t, s.login, n1)
	proven(t, s.login, n1, "mitgcm", before)
	during := n1.must(bootID)
	time.Sleep(20 * time.Second) // slurmctld saves its state every five seconds

	lost := time.Now()
	s.ctl1.press("stop")
	s.ctl2.until("the second broker to act", "systemctl show -P StatusText kernel-broker | grep -q '^serves agents on '")
	t.Logf("the second broker acts after %s", time.Since(lost).Round(time.Second))
	s.login.until("the second slurmctld", "squeue -h -j "+job+" -o %T | grep -qx RUNNING")
	t.Logf("the second slurmctld serves after %s\n%s", time.Since(lost).Round(time.Second), s.login.must("scontrol ping; sinfo; kernelctl node list"))
	if now := n1.must(bootID); now != during {
		t.Errorf("n1 has booted under job %s", job)
	}
	goesOn(t, s.login, job, n1)
	if shown := s.login.must("scontrol show job " + job); !strings.Contains(shown, "JobState=COMPLETED") || !strings.Contains(shown, "Restarts=0") {
		t.Errorf("the job is\n%s", shown)
	}
	jobOnItsKernel(t, s.login, n2)

	s.ctl1.press("system_reset")
	s.ctl1.press("cont")
	s.ctl1.up()
	s.well()
}

// profile has a job profiled on the distribution's kernel, up to its report.
func (s *wholeSite) profile(t *testing.T) {
	job := s.login.submit("-w n2 --kernel-profiling=syscalls,io",
		"i=0; while [ $i -lt 20 ]; do ls -lR /usr/lib/systemd >/dev/null; dd if=/dev/zero of=/tmp/zero bs=4k count=500 2>/dev/null; i=$((i+1)); done")
	s.login.jobEnds(job)
	s.login.until("the run", "kernelctl run list | awk '$3 == "+job+" { print $2 }' | grep -qE 'complete|partial|failed'")
	run := s.login.must("kernelctl run list | awk '$3 == " + job + " { print $1 }'")
	t.Log(s.login.must("runuser -u alice -- kernelctl run show " + run + "; runuser -u alice -- kernelctl run report " + run + " | head -n 60"))
	var report struct {
		Result struct {
			Job      uint32    `json:"job"`
			IO       *struct{} `json:"io"`
			Syscalls *struct{} `json:"syscalls"`
		} `json:"result"`
	}
	text := s.login.must("runuser -u alice -- kernelctl run report " + run + " --output json")
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		t.Fatalf("%v: the report is\n%s", err, text)
	}
	if r := report.Result; fmt.Sprint(r.Job) != job || r.IO == nil || r.Syscalls == nil {
		t.Errorf("the report lacks the job, its calls or its files:\n%s", text)
	}
	if state := s.login.must("kernelctl run list | awk '$3 == " + job + " { print $2 }'"); state != "complete" {
		t.Errorf("the run is %s:\n%s", state, s.nodes[1].must("journalctl -u kernel-broker-agent -b -o cat | tail -n 20"))
	}
}

// versions checks what is installed.
func (s *wholeSite) versions(t *testing.T, want string) {
	t.Helper()
	for _, m := range s.machines {
		shown := m.must(`dpkg-query -W -f '${Package} ${Version} ${db:Status-Abbrev}\n' 'kernel-broker*' | grep 'ii '`)
		for line := range strings.Lines(shown) {
			if fields := strings.Fields(line); fields[1] != want {
				t.Errorf("%s has %s, want %s", m.name, strings.TrimSpace(line), want)
			}
		}
	}
}

// to is another version for upgrade.yml. One node goes first, then the two others.
func to(packages string) []string {
	return []string{"-e", `{"kernel_broker_packages": "` + packages + `", "upgrade_serial": [1, 2]}`}
}

// upgrade brings the next version, and rollback the one before it again, while users' jobs wait and run.
func (s *wholeSite) upgrade(t *testing.T) {
	s.versions(t, "0.1.0-1")
	s.underJobs(t, func() { s.play(t, "upgrade.yml", to(s.newer)...) })
	s.versions(t, "0.2.0-1") // not before: nodes boot for the jobs that are left
	s.well()
}

func (s *wholeSite) rollback(t *testing.T) {
	s.underJobs(t, func() { s.play(t, "upgrade.yml", to(s.older)...) })
	s.versions(t, "0.1.0-1")
	s.well()
	jobOnItsKernel(t, s.login, s.nodes[2])
}

// underJobs does something to the site while twenty jobs wait and run. Each runs once, on its kernel. They take long enough
// to find nodes of both versions.
func (s *wholeSite) underJobs(t *testing.T, do func()) {
	t.Helper()
	together(t, "rm -f /home/alice/record", s.nodes...)
	const script = `agent=$(dpkg-query -W -f '${Version}' kernel-broker-agent)
echo "$SLURM_JOB_ID $agent $(hostname) $(uname -r)" >>/home/alice/record; sleep 240`
	kernels := map[string]string{} // by the job
	var jobs []string
	for i := range 20 {
		options, kernel := "--job-name=plain", "-amd64"
		if i/5%2 == 0 {
			options, kernel = "--job-name=own --kernel-profile=mitgcm", "-mitgcm"
		}
		job := s.login.submit(options, script)
		jobs, kernels[job] = append(jobs, job), kernel
	}
	list := strings.Join(jobs, ",")
	do()
	t.Logf("jobs that it left:\n%s", s.login.must("squeue -h -j "+list+" -o '%i %T'"))
	for _, job := range jobs {
		s.login.jobEnds(job)
	}
	home(s.login, s.nodes...)

	states := s.login.must("squeue -h -t all -j " + list + " -o '%i %T'")
	if got := strings.Count(states, "COMPLETED"); got != len(jobs) {
		t.Errorf("%d of %d jobs completed:\n%s", got, len(jobs), states)
	}
	ran, agents := map[string][]string{}, map[string]int{}
	for _, n := range s.nodes {
		for line := range strings.Lines(n.must("cat /home/alice/record || true")) {
			job, where, _ := strings.Cut(strings.TrimSpace(line), " ")
			ran[job] = append(ran[job], where)
			agent, _, _ := strings.Cut(where, " ")
			agents[agent]++
		}
	}
	for _, job := range jobs {
		if where := ran[job]; len(where) != 1 || !strings.HasSuffix(where[0], kernels[job]) {
			t.Errorf("job %s, for a kernel *%s, ran on %q", job, kernels[job], where)
		}
	}
	t.Logf("jobs that began under an agent of each version: %v", agents)
	if len(agents) < 2 {
		t.Errorf("all jobs ran under one version of the agent (%v), so that they tested half of it", agents)
	}
}

// rotate makes another authority, then has all nodes take certificates of it.
func (s *wholeSite) rotate(t *testing.T) {
	const authorities = "sha256sum </etc/kernel-broker/ca.pem"
	const certificate = "sha256sum </var/lib/kernel-broker/tls/node.pem"
	before := s.login.must(authorities)
	s.play(t, "rotate.yml")
	want := s.ctl1.must("sha256sum </var/lib/kernel-broker/ca.pem")
	if want == before {
		t.Error("the authorities are the same as before")
	}
	var old []string
	for _, m := range append([]*machine{s.login}, s.nodes...) {
		if got := m.must(authorities); got != want {
			t.Errorf("%s has not the authorities of the broker", m.name)
		}
	}
	for _, n := range s.nodes {
		old = append(old, n.must(certificate))
	}
	s.play(t, "rotate.yml", "--tags", "nodes")
	for i, n := range s.nodes {
		n.until("another certificate", `test "$(`+certificate+`)" != `+quote(old[i]))
	}
	s.well()
}

// leave takes a node out of the cluster and brings it back.
func (s *wholeSite) leave(t *testing.T) {
	n3 := s.nodes[2]
	s.play(t, "remove_node.yml", "-e", "remove=n3")
	if r := n3.run("dpkg-query -W -f '${db:Status-Abbrev}' kernel-broker-agent | grep '^ii'; pidof slurmd kernel-broker-agent; ls -d /var/lib/kernel-broker/tls"); r.out != "" {
		t.Errorf("n3 still has\n%s", r.out)
	}
	s.inventory(t, n3)
	s.play(t, "site.yml", "--tags", "slurm")
	s.login.until("slurmctld without n3", `test "$(sinfo -h -N -o %N | sort -u | tr '\n' ' ')" = 'n1 n2 '`)
	home(s.login, s.nodes[:2]...)

	s.inventory(t)
	s.play(t, "site.yml")
	s.well()
	jobOnItsKernel(t, s.login, n3)
}

// reboots has each host reboot while the others work; then a job gets its kernel.
func (s *wholeSite) reboots(t *testing.T) {
	for i, m := range []*machine{s.login, s.ctl1, s.ctl2} {
		m.reboot()
		s.well()
		jobOnItsKernel(t, s.login, s.nodes[i])
	}
	for _, n := range s.nodes {
		n.reboot()
	}
	s.well()
	jobOnItsKernel(t, s.login, s.nodes...)
}
