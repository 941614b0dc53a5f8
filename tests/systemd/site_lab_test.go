// SPDX-License-Identifier: Apache-2.0

//go:build lab

package systemd

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// bare is the root of a machine with Debian, Python and ssh, and a kernel whose initrd has what a virtual machine needs.
// What the roles install waits in /debs, since the machines have no other registry.
var bare = root{
	packages: []string{
		"systemd", "systemd-sysv", "dbus", "libnss-systemd", "kmod", "udev", "iproute2", "procps", "openssh-server",
		"python3", "python3-apt", "linux-image-amd64", "initramfs-tools",
	},
	hooks: []string{
		`--essential-hook=mkdir -p "$1/etc/initramfs-tools/conf.d" && echo MODULES=list >"$1/etc/initramfs-tools/conf.d/site"` +
			` && printf '%s\n' virtio_pci virtio_blk ext4 >"$1/etc/initramfs-tools/modules"`,
		`--customize-hook=APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get -qq -y --no-install-recommends install --download-only` +
			` munge slurmctld slurmd slurmdbd slurm-client slurm-wlm-basic-plugins mariadb-server kexec-tools` +
			` && mkdir "$1/debs" && mv "$1"/var/cache/apt/archives/*.deb "$1/debs"`,
	},
}

// TestSite takes two bare machines to a job on its own kernel by the Ansible roles alone: a controller with slurmdbd and
// the broker, and a node.
func TestSite(t *testing.T) {
	if _, err := exec.LookPath("ansible-playbook"); err != nil {
		t.Fatalf("%v (make deps-long)", err)
	}
	dir := t.TempDir()
	top, err := filepath.Abs(repo)
	if err != nil {
		t.Fatal(err)
	}
	packages := filepath.Join(dir, "packages")
	command(t, "make", "-s", "-C", top, "-o", "build", "packages", "VERSION=v0.1.0")
	command(t, "cp", "-r", filepath.Join(top, "build/packages"), packages)

	b := boot{dir: dir, image: filepath.Join(dir, "root.ext4"), kernel: filepath.Join(dir, "vmlinuz"), initrd: filepath.Join(dir, "initrd.img")}
	own := b.stageFiles(t)
	key := filepath.Join(dir, "key")
	command(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
	stage(t, filepath.Join(own, "bare.sh"), bare.debian(t), dir, key+".pub", registry(t, filepath.Join(dir, "repository")), b.image)

	s := &site{ctl1: power(t, b, "ctl1"), n1: power(t, b, "n1")}
	defer hold(t, s.ctl1, s.n1)
	a := &ansible{dir: dir, top: top}
	a.inventory(t, s, key, packages)
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"from bare hosts", func(t *testing.T) {
			s.ctl1.up()
			s.n1.up()
			for _, m := range []*machine{s.ctl1, s.n1} {
				if found := m.run("ls -d /etc/slurm /etc/munge /etc/kernel-broker /usr/sbin/kexec").out; found != "" {
					t.Fatalf("%s is not bare: %s", m.name, found)
				}
			}
			if a.play(t, "site.yml")["ctl1"] == 0 {
				t.Error("nothing changed")
			}
		}},
		{"a job on its kernel", s.jobOnItsKernel},
		{"the second run changes nothing", func(t *testing.T) { a.unchanged(t, "site.yml", "--diff") }},
		{"check mode finds nothing", func(t *testing.T) { a.unchanged(t, "site.yml", "--check", "--diff") }},
	} {
		done := t.Run(step.name, func(t *testing.T) {
			s.ctl1.t, s.n1.t = t, t
			step.do(t)
		})
		s.ctl1.t, s.n1.t = t, t
		if !done {
			return
		}
	}
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

// ansible runs the repository's playbooks on the machines.
type ansible struct {
	dir, top string
}

func (a *ansible) inventory(t *testing.T, s *site, key, packages string) {
	t.Helper()
	host := func(m *machine) string {
		address, port, _ := strings.Cut(m.ssh, ":")
		return fmt.Sprintf("{ansible_host: %s, ansible_port: %s}", address, port)
	}
	kernels, err := filepath.Abs(filepath.Join(repo, "build/kernels"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(a.dir, "inventory.yml"), fmt.Sprintf(`all:
  vars:
    ansible_user: root
    ansible_ssh_private_key_file: %s
    ansible_ssh_common_args: -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o ConnectTimeout=60
    ansible_ssh_pipelining: true
    ansible_python_interpreter: /usr/bin/python3
    kernel_broker_packages: %s
    slurm_cluster: lab
  children:
    slurm_dbd: {hosts: {ctl1: {}}}
    slurm_controller:
      hosts: {ctl1: %s}
      vars: {catalog_folder: %s/catalog, catalog_kernels: %s}
    slurm_nodes:
      hosts: {n1: %s}
      vars: {slurm_node: CPUs=1 RealMemory=600}
    slurm_submit: {hosts: {ctl1: {}}}
`, key, packages, host(s.ctl1), a.top, kernels, host(s.n1)), 0o644)
}

var recap = regexp.MustCompile(`^(\S+) +: ok=(\d+) +changed=(\d+) +unreachable=(\d+) +failed=(\d+)`)

// play runs a playbook to its end, and returns how much it changed on each host.
func (a *ansible) play(t *testing.T, playbook string, args ...string) map[string]int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*limit)
	defer cancel()
	args = append([]string{"-i", filepath.Join(a.dir, "inventory.yml"), filepath.Join(a.top, "ansible", playbook)}, args...)
	cmd := exec.CommandContext(ctx, "ansible-playbook", args...)
	cmd.Env = append(os.Environ(), "ANSIBLE_NOCOLOR=1", "ANSIBLE_TIMEOUT=120", "ANSIBLE_LOCAL_TEMP="+filepath.Join(a.dir, "ansible"))
	started := time.Now()
	// In a file, for who watches.
	path := filepath.Join(a.dir, "ansible.log")
	log, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	err = cmd.Run()
	_ = log.Close()
	out := contents(t, path)
	if err != nil {
		t.Fatalf("ansible-playbook %s: %v\n%s", strings.Join(args[2:], " "), err, out)
	}
	changed := map[string]int{}
	lines := bufio.NewScanner(strings.NewReader(string(out)))
	for lines.Scan() {
		if found := recap.FindStringSubmatch(lines.Text()); found != nil {
			var n int
			_, _ = fmt.Sscan(found[3], &n) // digits
			changed[found[1]] = n
		}
	}
	if len(changed) != 2 {
		t.Fatalf("ansible-playbook has no recap of two hosts:\n%s", out)
	}
	t.Logf("%s %s: %s, changed %v", playbook, strings.Join(args[3:], " "), time.Since(started).Round(time.Second), changed)
	if t.Failed() {
		t.Logf("%s", out)
	}
	return changed
}

// unchanged runs a playbook that is to change nothing.
func (a *ansible) unchanged(t *testing.T, playbook string, args ...string) {
	t.Helper()
	for host, n := range a.play(t, playbook, args...) {
		if n != 0 {
			t.Errorf("%s %v changes %d things on %s", playbook, args, n, host)
		}
	}
}

// jobOnItsKernel submits as a user, and follows the node there and back.
func (s *site) jobOnItsKernel(t *testing.T) {
	t.Log(s.ctl1.must("sinfo; kernelctl node list"))
	before := s.n1.must("cat /proc/sys/kernel/random/boot_id; uname -r")
	job := s.submit("--kernel-profile=mitgcm", "uname -r; while [ ! -e /tmp/go ]; do sleep 1; done")
	s.ctl1.until("the job to run", "squeue -h -j "+job+" -o %T | grep -qx RUNNING")
	during := s.n1.must("cat /proc/sys/kernel/random/boot_id; uname -r; findmnt -n /; systemctl is-active kernel-broker-agent slurmd munge ssh")
	t.Logf("job %s runs on\n%s\n%s", job, during, s.ctl1.must("sinfo; kernelctl node list"))
	if !strings.Contains(during, "-mitgcm") || strings.HasPrefix(during, before[:36]) {
		t.Errorf("the node did not boot the kernel:\n%s", during)
	}
	s.n1.must("touch /tmp/go")
	s.n1.until("the distribution's kernel", "uname -r | grep -q amd64 && systemctl is-active slurmd")
	s.ctl1.until("n1 to be idle", "sinfo -h -n n1 -o %t | grep -qx idle && kernelctl node list | grep -qE '^n1 +steady +stock@[0-9]+ +stock +yes'")
	if out := s.n1.must("cat /home/alice/job." + job); !strings.Contains(out, "-mitgcm") {
		t.Errorf("the job's output is\n%s", out)
	}
	t.Log(s.ctl1.must("kernelctl job show " + job))

	// A misspelt name is refused at once, with the name that it may be.
	if r := s.ctl1.run("cd /tmp && runuser -u alice -- sbatch --kernel-profile=mitgmc --wrap true"); r.exit == 0 || !strings.Contains(r.err, `"mitgcm"`) {
		t.Errorf("a misspelt profile: exit %d, %s", r.exit, r.err)
	}
}
