// SPDX-License-Identifier: Apache-2.0

//go:build lab

package systemd

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/support/debianroot"
)

// bare is the root of a machine with Debian, Python and ssh, and a kernel whose initrd has what a virtual machine needs.
// What the roles install waits in /debs, since the machines have no other registry.
var bare = debianroot.Root{
	Packages: []string{
		"systemd", "systemd-sysv", "dbus", "libnss-systemd", "kmod", "udev", "iproute2", "procps", "openssh-server",
		"python3", "python3-apt", "linux-image-amd64", "initramfs-tools",
	},
	Hooks: []string{
		`--essential-hook=mkdir -p "$1/etc/initramfs-tools/conf.d" && echo MODULES=list >"$1/etc/initramfs-tools/conf.d/site"` +
			` && printf '%s\n' virtio_pci virtio_blk ext4 >"$1/etc/initramfs-tools/modules"`,
		`--customize-hook=APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get -qq -y --no-install-recommends install --download-only` +
			` munge slurmctld slurmd slurmdbd slurm-client slurm-wlm-basic-plugins mariadb-server kexec-tools` +
			` etcd-server etcd-client openssl nfs-kernel-server nfs-common` +
			` && mkdir "$1/debs" && mv "$1"/var/cache/apt/archives/*.deb "$1/debs"`,
	},
}

// product makes the product's packages and returns their folder.
func product(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "packages")
	command(t, "make", "-s", "-C", repo, "-o", "build", "packages", "VERSION=v0.1.0")
	command(t, "cp", "-r", filepath.Join(repo, "build/packages"), folder)
	return folder
}

// bareSite is bare machines that Ansible makes a site of.
type bareSite struct {
	ansible
}

// newBareSite starts bare machines. The variables are added to those of each inventory.
func newBareSite(t *testing.T, hosts []host, limit time.Duration, vars map[string]any) *bareSite {
	t.Helper()
	if _, err := exec.LookPath("ansible-playbook"); err != nil {
		t.Fatalf("%v (make deps-long)", err)
	}
	dir := t.TempDir()
	top, err := filepath.Abs(repo)
	if err != nil {
		t.Fatal(err)
	}
	b := boot{dir: dir, hosts: hosts, limit: limit,
		image: filepath.Join(dir, "root.ext4"), kernel: filepath.Join(dir, "vmlinuz"), initrd: filepath.Join(dir, "initrd.img")}
	own := b.stageFiles(t)
	key := filepath.Join(dir, "key")
	command(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
	stage(t, filepath.Join(own, "bare.sh"), bare.Archive(t), dir, key+".pub", registry(t, filepath.Join(dir, "repository")), b.image)

	s := &bareSite{ansible{dir: dir, top: top, limit: 4 * limit, vars: map[string]any{
		"slurm_cluster":   "lab",
		"slurm_node":      "CPUs=1 RealMemory=600",
		"catalog_folder":  filepath.Join(top, "catalog"),
		"catalog_kernels": filepath.Join(top, "build/kernels"),
	}}}
	maps.Copy(s.vars, vars)
	s.machines = b.start(t)
	t.Logf("what ansible does now is in %s", s.logFile())
	s.sshConfig(t, key)
	s.inventory(t)
	return s
}

// heldBareSite is the machines that another process holds (hold), with the variables of their inventory.
func heldBareSite(t *testing.T, file string, hosts []host, limit time.Duration) *bareSite {
	t.Helper()
	top, err := filepath.Abs(repo)
	if err != nil {
		t.Fatal(err)
	}
	s := &bareSite{ansible{top: top, limit: 4 * limit}}
	for line := range strings.Lines(string(contents(t, file))) {
		m := &machine{t: t, limit: limit, ended: make(chan struct{})}
		var name string
		if _, err := fmt.Sscan(line, &name, &m.channel, &m.token, &s.dir); err != nil {
			t.Fatalf("%s: %v in %q", file, err, line)
		}
		for _, h := range hosts {
			if h.name == name {
				m.host = h
			}
		}
		m.monitor, m.console = filepath.Join(s.dir, name+".qmp"), filepath.Join(s.dir, name+".console")
		s.machines = append(s.machines, m)
	}
	var inventory struct {
		All struct {
			Vars map[string]any `json:"vars"`
		} `json:"all"`
	}
	if err := json.Unmarshal(contents(t, s.inventoryFile()), &inventory); err != nil {
		t.Fatalf("%s: %v", s.inventoryFile(), err)
	}
	s.vars = inventory.All.Vars
	return s
}

// on is the machine of that name.
func (s *bareSite) on(name string) *machine {
	for _, m := range s.machines {
		if m.name == name {
			return m
		}
	}
	panic("no machine " + name)
}

// isBare checks that nothing of Slurm or the product is on the machines, when they are up.
func (s *bareSite) isBare(t *testing.T) {
	t.Helper()
	for _, m := range s.machines {
		m.up()
		if found := m.run("ls -d /etc/slurm /etc/munge /etc/etcd /etc/kernel-broker /usr/sbin/kexec").out; found != "" {
			t.Fatalf("%s is not bare: %s", m.name, found)
		}
	}
}

// install installs the site, and checks that all hosts have got something.
func (s *bareSite) install(t *testing.T) {
	t.Helper()
	changed := s.play(t, "site.yml")
	s.all(t, changed)
	for host, n := range changed {
		if n == 0 {
			t.Errorf("nothing changed on %s", host)
		}
	}
}

// TestSite takes two bare machines to a job on its own kernel by the Ansible roles alone: a controller with slurmdbd and
// the broker, and a node.
func TestSite(t *testing.T) {
	s := newBareSite(t, two, limit, map[string]any{"kernel_broker_packages": product(t)})
	defer s.hold(t)
	steps(t, s.machines,
		step{"from bare hosts", func(t *testing.T) {
			s.isBare(t)
			s.install(t)
		}},
		step{"a job on its kernel", func(t *testing.T) {
			jobOnItsKernel(t, s.on("ctl1"), s.on("n1"))
			misspelt(t, s.on("ctl1"))
		}},
		step{"the second run changes nothing", func(t *testing.T) { s.unchanged(t, "site.yml", "--diff") }},
		step{"check mode finds nothing", func(t *testing.T) { s.unchanged(t, "site.yml", "--check", "--diff") }},
	)
}

// hold keeps the machines where somebody wants them, and says how to reach them.
func (s *bareSite) hold(t *testing.T) {
	var hints []string
	for _, m := range s.machines {
		hints = append(hints, fmt.Sprintf("ssh -F %s %s    # %s", s.sshFile(), m.name, strings.Join(m.groups, ", ")))
	}
	hold(t, s.machines, hints...)
}

// registry serves a folder of packages to the machines and returns its address as they see it.
func registry(t *testing.T, dir string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.FileServer(http.Dir(dir)), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }() // until Close
	t.Cleanup(func() { _ = server.Close() })
	return fmt.Sprintf("http://10.0.2.2:%d/", listener.Addr().(*net.TCPAddr).Port)
}

func names(machines []*machine) (all []string) {
	for _, m := range machines {
		all = append(all, m.name)
	}
	return all
}

// home waits until nodes are free, and the broker has the distribution's kernel of each proven; from is a host with
// kernelctl.
func home(from *machine, nodes ...*machine) {
	from.t.Helper()
	for _, n := range nodes {
		from.until(n.name+" to be idle on the distribution's kernel", fmt.Sprintf(
			"sinfo -h -n %[1]s -o %%t | grep -qx idle && kernelctl node list | grep -qE '^%[1]s +steady +stock@[0-9]+ +stock +yes '", n.name))
	}
}

// proven checks that a node runs a profile by what the node, Slurm's daemon there and the broker say. Boot was the node's
// boot before.
func proven(t *testing.T, from, n *machine, profile, boot string) {
	t.Helper()
	during := n.must(bootID + "; uname -r; findmnt -n /; systemctl is-active kernel-broker-agent slurmd munge ssh")
	t.Logf("%s runs\n%s", n.name, during)
	if !strings.Contains(during, "-"+profile) || strings.HasPrefix(during, boot) {
		t.Errorf("%s did not boot the kernel:\n%s", n.name, during)
	}
	row := from.must("kernelctl node list | grep '^" + n.name + " '")
	if fields := strings.Fields(row); len(fields) < 5 || !strings.HasPrefix(fields[2], profile+"@") || fields[4] != "yes" {
		t.Errorf("the broker has of it\n%s", row)
	}
}

// started submits a job on a kernel of its own that waits for a file go on its first node, and waits until it runs.
func started(t *testing.T, from *machine, nodes ...*machine) (job string) {
	t.Helper()
	job = from.submit(fmt.Sprintf("-N%d -w %s --kernel-profile=mitgcm", len(nodes), strings.Join(names(nodes), ",")),
		"srun uname -r; while [ ! -e /home/alice/go.$SLURM_JOB_ID ]; do sleep 1; done; echo to the end")
	from.until("job "+job+" to run", "squeue -h -j "+job+" -o %T | grep -qx RUNNING")
	return job
}

// goesOn has a job of started end, and follows its nodes back.
func goesOn(t *testing.T, from *machine, job string, nodes ...*machine) {
	t.Helper()
	nodes[0].must("touch /home/alice/go." + job)
	from.jobEnds(job)
	for _, n := range nodes {
		n.until("the distribution's kernel", "uname -r | grep -q amd64 && systemctl is-active slurmd")
	}
	home(from, nodes...)
	out := nodes[0].must("cat /home/alice/job." + job)
	if strings.Count(out, "-mitgcm") != len(nodes) || !strings.HasSuffix(out, "to the end") {
		t.Errorf("the output of job %s is\n%s", job, out)
	}
	t.Log(from.must("runuser -u alice -- kernelctl job show " + job))
}

// jobOnItsKernel submits as a user, and follows the nodes there and back.
func jobOnItsKernel(t *testing.T, from *machine, nodes ...*machine) {
	t.Helper()
	t.Log(from.must("sinfo; kernelctl node list"))
	boots := make([]string, len(nodes))
	for i, n := range nodes {
		boots[i] = n.must(bootID)
	}
	job := started(t, from, nodes...)
	for i, n := range nodes {
		proven(t, from, n, "mitgcm", boots[i])
	}
	goesOn(t, from, job, nodes...)
}

// misspelt checks that a misspelt profile is refused at once, with the name that it may be.
func misspelt(t *testing.T, from *machine) {
	t.Helper()
	r := from.run("cd /tmp && runuser -u alice -- sbatch --kernel-profile=mitgmc --wrap true")
	if r.exit == 0 || !strings.Contains(r.err, `"mitgcm"`) {
		t.Errorf("a misspelt profile: exit %d, %s", r.exit, r.err)
	}
}
