// SPDX-License-Identifier: Apache-2.0

//go:build lab

package systemd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// site is the two machines with the product on them, as the steps of a test
// make it.
type site struct {
	ctl1, n1 *machine
}

// Each step continues the one before it, so a failure ends the test.
func TestUnits(t *testing.T) {
	dir := t.TempDir()
	b := disk(t, dir)
	machines := b.start(t)
	defer hold(t, machines)
	s := &site{ctl1: machines[0], n1: machines[1]}
	steps(t, machines,
		step{"the broker starts", s.brokerStarts},
		step{"the broker's rights", s.brokersRights},
		step{"the broker ends and comes back", s.brokerEnds},
		step{"the agent starts", s.agentStarts},
		step{"the agent's rights", s.agentsRights},
		step{"the agent ends and comes back", s.agentEnds},
		step{"slurmd waits for the agent", s.slurmdWaits},
		step{"another kernel", s.anotherKernel},
		step{"collectors", s.collectors},
		step{"secrets", s.secrets},
		step{"slurmd as the agent's child", s.slurmdAsChild},
	)
}

// slurmdbd and slurmctld are there before the product is.
const startSlurm = `set -e
systemctl start mariadb
mysql -e "create user slurm@localhost identified via unix_socket; grant all on slurm_acct_db.* to slurm@localhost"
systemctl start slurmdbd`

const accounts = `set -e
sacctmgr -i add cluster cluster || sacctmgr -n list cluster | grep -q cluster
sacctmgr -i add account users
sacctmgr -i add user alice account=users`

// broker is section 1 of docs/ops/install.md.
const broker = `set -e
systemd-sysusers kernel-broker.conf
sacctmgr -i add user kernel-broker account=root adminlevel=Admin
install -d -o kernel-broker -g kernel-broker -m 0755 /var/lib/kernel-broker
install -d -o slurm -g slurm -m 0750 /var/lib/kernel-broker/hook
cp /etc/kernel-broker/broker.yaml.sample /etc/kernel-broker/broker.yaml
cp /etc/kernel-broker/client.yaml.sample /etc/kernel-broker/client.yaml
# For nodes that are slow to load programs for their kernel.
sed -i 's/^  standby: .*/  standby: 2m/' /etc/kernel-broker/broker.yaml
sed -i 's/^profiling_wait: .*/profiling_wait: 150s/' /etc/kernel-broker/client.yaml
kernel-broker --check
systemctl enable --now kernel-broker`

// agent is section 3, for a node where systemd runs slurmd.
const agent = `set -e
sed -e 's/^broker: .*/broker: ctl1:7440/' \
	-e 's/^  start: .*/  start: [systemctl, restart, slurmd]/' -e 's/^  first_start: .*/  first_start: []/' -e 's/^  stop: .*/  stop: [systemctl, stop, slurmd]/' \
	-e 's/^  before: .*/  before: [systemctl, start, kernel-broker-kexec.target]/' \
	-e "s|^  initrd: .*|  initrd: $(echo /boot/initrd.img-*)|" \
	/etc/kernel-broker/agent.yaml.sample >/etc/kernel-broker/agent.yaml
install -D -m 0644 /usr/share/kernel-broker/slurmd.service.d/kernel-broker.conf \
	/etc/systemd/system/slurmd.service.d/kernel-broker.conf
echo 'SLURMD_OPTIONS="-v"' >/etc/default/slurmd
systemctl daemon-reload
systemctl disable slurmd
kernel-broker-agent --check
systemctl enable --now kernel-broker-agent`

// well is the output of kernelctl for a healthy broker.
const well = "kernelctl health"

func (s *site) brokerStarts(t *testing.T) {
	s.ctl1.up()
	s.ctl1.must(startSlurm)
	s.ctl1.until("slurmdbd", "sacctmgr -n list cluster")
	s.ctl1.must(accounts)
	s.ctl1.must("systemctl start slurmctld")
	s.ctl1.until("slurmctld", "scontrol ping | grep -q 'is UP'")
	s.ctl1.must(broker)
	if text := s.ctl1.must("systemctl show -P StatusText kernel-broker"); !strings.HasPrefix(text, "serves agents on ") {
		t.Errorf("the broker's status as soon as it is started: %q", text)
	}
	s.ctl1.until("the broker's health", well)
	t.Log(s.ctl1.must("kernelctl profile apply /usr/share/kernel-broker/catalog --kernels /srv/kernels --built 2>&1"))
	if list := s.ctl1.must("runuser -u alice -- kernelctl profile list"); !strings.Contains(list, "mitgcm") || !strings.Contains(list, "stock") {
		t.Errorf("a user sees\n%s", list)
	}
	if r := s.ctl1.run("runuser -u alice -- kernelctl node token n1 --output-file /tmp/n1.token"); r.exit == 0 || !strings.Contains(r.err, "alice") {
		t.Errorf("a user gets a node's token: exit %d, %s%s", r.exit, r.out, r.err)
	}
}

// The claims of the broker's unit, docs/ops/install.md and docs/ops/trust.md.
func (s *site) brokersRights(t *testing.T) {
	const unit = "kernel-broker.service"
	uid, gid := s.ctl1.must("id -u kernel-broker"), s.ctl1.must("id -g kernel-broker")
	s.ctl1.status(t, unit, `Uid:(\t`+uid+`){4}`, `Groups:\t`+gid+` ?`, `NoNewPrivs:\t1`, `Seccomp:\t2`, `Umask:\t0027`,
		`CapInh:\t0+`, `CapPrm:\t0+`, `CapEff:\t0+`, `CapBnd:\t0+`, `CapAmb:\t0+`)
	// The last is etcd's, in a private folder.
	s.ctl1.sockets(t, unit, "tcp *:7440", "u_str /run/kernel-broker/broker.sock", "u_str /var/lib/kernel-broker/etcd/client.sock")
	s.ctl1.attempted(t, unit, "", nil)
	// A service's /tmp and /var/tmp are its own and end with it.
	s.ctl1.folders(t, unit, "/run/kernel-broker", "/var/lib/kernel-broker", "/tmp", "/var/tmp")
	s.ctl1.exposure(t, unit, 1.2)
}

func (s *site) brokerEnds(t *testing.T) {
	const pid = "systemctl show -P MainPID kernel-broker"
	first := s.ctl1.must(pid)
	s.ctl1.must("systemctl restart kernel-broker")
	s.ctl1.until("the broker after a restart", well)
	second := s.ctl1.must(pid)
	s.ctl1.must("systemctl kill -s KILL kernel-broker")
	s.ctl1.until("the broker after SIGKILL", well)
	third := s.ctl1.must(pid)
	if first == second || second == third || s.ctl1.must("systemctl show -P NRestarts kernel-broker") != "1" {
		t.Errorf("processes %s, %s, %s", first, second, third)
	}
	// The policy is reloaded; an invalid one leaves the old one in force.
	s.ctl1.must("cp /etc/kernel-broker/policy.yaml.sample /etc/kernel-broker/policy.yaml && systemctl reload kernel-broker")
	s.ctl1.until("the policy", "kernelctl health | grep '^ *policy .*/etc/kernel-broker/policy.yaml' | grep -qv 'not in force'")
	// Without its file the broker does not start, unless it is told that there is none.
	s.ctl1.must("rm /etc/kernel-broker/policy.yaml; ! timeout 60 systemctl restart kernel-broker")
	s.ctl1.until("the refusal", `journalctl -u kernel-broker | grep -q 'policy: \\*"\\*"'`)
	s.ctl1.must("systemctl stop kernel-broker; systemctl reset-failed kernel-broker; cp -a /etc/kernel-broker/broker.yaml /root/broker.yaml")
	s.ctl1.must(`sed -i 's/^policy:.*/policy: ""/' /etc/kernel-broker/broker.yaml && systemctl start kernel-broker`)
	s.ctl1.until("the broker without a policy", well)
	s.ctl1.must("cp -a /root/broker.yaml /etc/kernel-broker/broker.yaml && systemctl restart kernel-broker")

	s.ctl1.must("systemctl stop kernel-broker && test ! -e /run/kernel-broker && ! ss -tlnH | grep :7440")
	if r := s.ctl1.run("kernelctl profile list"); r.exit == 0 {
		t.Error("kernelctl finds a broker that was stopped")
	}
	s.ctl1.must("systemctl start kernel-broker")
	s.ctl1.until("the broker after a stop", well)
	if list := s.ctl1.must("kernelctl profile list"); !strings.Contains(list, "mitgcm") {
		t.Errorf("after all this the catalog is\n%s", list)
	}
	t.Logf("process %s, restarted %s, killed and back as %s, stopped and started", first, second, third)
}

func (s *site) agentStarts(t *testing.T) {
	s.n1.up()
	// Both know the cluster's key: here it is the same disk.
	s.n1.must(agent)
	// The administrator carries it over.
	token := s.ctl1.must("kernelctl node token n1 --output-file /root/n1.token && cat /root/n1.token")
	s.n1.put("/etc/kernel-broker/token", "0600", token)
	s.n1.until("the node's certificate", "test ! -e /etc/kernel-broker/token && kernel-broker-agent status | grep -q 'attested *yes'")
	s.slurmdUp()
	t.Log(s.n1.must("kernel-broker-agent status"))
}

// slurmdUp waits until the node accepts jobs.
func (s *site) slurmdUp() {
	s.n1.t.Helper()
	s.n1.until("slurmd", "systemctl is-active slurmd")
	s.ctl1.until("n1 to be idle", "sinfo -h -o %T | grep -qx idle")
}

// powers of root that the agent keeps, by their numbers.
var powers = map[string]int{
	"SYS_BOOT": 22, "SYS_ADMIN": 21, "SYS_MODULE": 16, "NET_BIND_SERVICE": 10, "NET_ADMIN": 12,
	"BPF": 39, "PERFMON": 38, "SYSLOG": 34, "SYS_RESOURCE": 24, "SYS_PTRACE": 19, "DAC_READ_SEARCH": 2,
}

func (s *site) agentsRights(t *testing.T) {
	const unit = "kernel-broker-agent.service"
	mask := 0
	for _, bit := range powers {
		mask |= 1 << bit
	}
	s.n1.status(t, unit, `Uid:(\t0){4}`, `NoNewPrivs:\t1`, `Seccomp:\t2`, fmt.Sprintf(`CapEff:\t%016x`, mask), fmt.Sprintf(`CapBnd:\t%016x`, mask))
	s.n1.sockets(t, unit, "u_str /run/kernel-broker/agent.sock")
	s.n1.attempted(t, unit, "", []string{
		"load a module",
		"read another process's memory", "see another process", "a program for the kernel (BPF)", // collectors
		"load a kernel", "boot",
		"a netlink socket", "change the network", "a port below 1024",
		"read MUNGE's key", "read users' homes", // DAC_READ_SEARCH, for collectors
		"have systemd run a program", // as it starts slurmd; see docs/security.md
		"addresses of memory in /proc/iomem",
	})
	// Without the collectors' privileges, by the drop-in of the page.
	page, err := os.ReadFile(filepath.Join(repo, "docs/ops/trust.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, lines, _ := strings.Cut(string(page), "[Service]\nCapabilityBoundingSet=~CAP_BPF")
	lines, _, _ = strings.Cut(lines, "```")
	s.n1.attempted(t, unit, "CapabilityBoundingSet=~CAP_BPF"+lines, []string{
		"load a module", "see another process", "load a kernel", "boot", "a netlink socket", "change the network", "a port below 1024", "have systemd run a program",
		"addresses of memory in /proc/iomem",
	})
	s.n1.folders(t, unit, "/run/kernel-broker", "/var/lib/kernel-broker", "/var/cache/kernel-broker", "/etc/kernel-broker", "/usr/lib/modules", "/tmp", "/var/tmp")
	s.n1.exposure(t, unit, 4.9)
}

func (s *site) agentEnds(t *testing.T) {
	const pids = "systemctl show -P MainPID kernel-broker-agent slurmd"
	const connected = "kernel-broker-agent status | grep -q 'attested *yes'"
	var seen []string
	for _, how := range []string{"true", "systemctl restart kernel-broker-agent", "systemctl kill -s KILL kernel-broker-agent", "systemctl stop kernel-broker-agent; test -s /run/kernel-broker/node.state && systemctl start kernel-broker-agent"} {
		s.n1.must(how)
		s.n1.until("the agent after "+how, connected)
		seen = append(seen, strings.Join(strings.Fields(s.n1.must(pids)), " "))
	}
	t.Logf("processes of agent and slurmd: %q", seen)
	slurmd := map[string]bool{}
	agents := map[string]bool{}
	for _, line := range seen {
		a, d, _ := strings.Cut(line, " ")
		agents[a], slurmd[d] = true, true
	}
	if len(agents) != len(seen) || len(slurmd) != 1 || slurmd["0"] {
		t.Errorf("not each time another agent, and the same slurmd: %q", seen)
	}
}

// What the drop-in for slurmd.service says of itself.
func (s *site) slurmdWaits(t *testing.T) {
	shown := s.n1.must("systemctl show slurmd -p Environment,Restart,TimeoutStartUSec,Wants,After,DropInPaths; systemctl is-enabled slurmd || true; tr '\\0' ' ' </proc/$(systemctl show -P MainPID slurmd)/cmdline")
	t.Log(shown)
	for _, want := range []string{
		"Restart=no", "TimeoutStartUSec=1min 30s", "DropInPaths=/etc/systemd/system/slurmd.service.d/kernel-broker.conf",
		"disabled", "/usr/sbin/slurmd -D -s -v",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("no %q in\n%s", want, shown)
		}
	}
	// A restart by hand is no boot to Slurm, and a job lives through it.
	if strings.Contains(shown, " -b") {
		t.Errorf("slurmd claims a boot where there was none:\n%s", shown)
	}
	job := s.submit("", "while [ ! -e /tmp/on ]; do sleep 1; done")
	s.ctl1.until("the job to run", "squeue -h -j "+job+" -o %T | grep -qx RUNNING")
	before := s.ctl1.must("scontrol show node n1 | sed -n 's/.*SlurmdStartTime=//p'")
	s.n1.must("systemctl restart slurmd")
	s.ctl1.until("the new slurmd's word", "scontrol show node n1 | grep SlurmdStartTime= | grep -qv 'SlurmdStartTime="+before+"$'")
	if state := s.ctl1.must("squeue -h -j " + job + " -o %T; sinfo -h -o %T"); state != "RUNNING\nallocated" {
		t.Errorf("after slurmd's restart the job and the node are %q", state)
	}
	s.n1.must("touch /tmp/on")
	s.ended(job)

	// Nobody vouches for the kernel: no slurmd, however it is asked for.
	r := s.n1.run(`systemctl stop slurmd kernel-broker-agent
systemctl mask --runtime kernel-broker-agent
systemctl start slurmd`)
	state := s.n1.must("systemctl show -P Result,MainPID,ActiveState slurmd; journalctl -b -u slurmd -n 5 -o cat; systemctl unmask --runtime kernel-broker-agent; systemctl reset-failed slurmd")
	t.Logf("without the agent: exit %d, %s", r.exit, state)
	if r.exit == 0 || !strings.Contains(state, "not ready within 1m20s") || s.n1.run("pidof slurmd").exit == 0 {
		t.Errorf("slurmd starts without the agent: exit %d, %s", r.exit, state)
	}
	// Asked for slurmd, systemd starts the agent first.
	s.n1.must("systemctl start slurmd && systemctl is-active kernel-broker-agent")
	s.slurmdUp()
}
