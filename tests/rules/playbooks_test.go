// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// playbooks are the repository's, run on this machine for hosts that are only names. Programs and roles that a test does
// not look at are stand-ins.
type playbooks struct {
	t   *testing.T
	dir string
}

func newPlaybooks(t *testing.T) *playbooks {
	t.Helper()
	if _, err := exec.LookPath("ansible-playbook"); err != nil {
		t.Skip("no ansible-playbook here (package ansible-core)")
	}
	t.Parallel()
	p := &playbooks{t: t, dir: t.TempDir()}
	if out, err := exec.Command("cp", "-a", "../../ansible", p.dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return p
}

func (p *playbooks) write(name, text string, mode os.FileMode) {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		p.t.Fatal(err)
	}
}

func (p *playbooks) read(name string) string {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, name))
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// program is a stand-in; $state is the folder that it shares with the others.
func (p *playbooks) program(name, text string) {
	p.t.Helper()
	p.write("bin/"+name, fmt.Sprintf("#!/bin/sh\nstate='%s/state'\n%s\n", p.dir, text), 0o755)
}

// role replaces a role by one task, also where others take only a part of it.
func (p *playbooks) role(name, task string, parts ...string) {
	p.t.Helper()
	if err := os.RemoveAll(filepath.Join(p.dir, "ansible/roles", name)); err != nil {
		p.t.Fatal(err)
	}
	for _, part := range append([]string{"main"}, parts...) {
		p.write("ansible/roles/"+name+"/tasks/"+part+".yml", task, 0o644)
	}
}

// noPackages stands in for the role package: nothing is installed, and daemons are compared with their files.
func (p *playbooks) noPackages() {
	p.t.Helper()
	newer := p.read("ansible/roles/package/tasks/newer.yml")
	p.role("package", "[]\n", "debian", "bare")
	p.write("ansible/roles/package/tasks/newer.yml", newer, 0o644)
}

// edit replaces texts in files of the collection, in all of them if name is empty. It is how they find the test's folder
// where they name a host's, and modules' stand-ins.
func (p *playbooks) edit(name string, pairs ...string) {
	p.t.Helper()
	found := make([]bool, len(pairs))
	err := filepath.WalkDir(filepath.Join(p.dir, "ansible", name), func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || filepath.Ext(path) != ".yml" && filepath.Ext(path) != ".j2" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for i := 0; i < len(pairs); i += 2 {
			found[i] = found[i] || strings.Contains(string(text), pairs[i])
		}
		return os.WriteFile(path, []byte(strings.NewReplacer(pairs...).Replace(string(text))), 0o644)
	})
	if err != nil {
		p.t.Fatal(err)
	}
	for i := 0; i < len(pairs); i += 2 {
		if !found[i] {
			p.t.Fatalf("the collection has no %q", pairs[i])
		}
	}
}

// module is a stand-in for a module of ansible.builtin. $1 is the file with its arguments in JSON.
func (p *playbooks) module(name, text string) {
	p.t.Helper()
	p.edit("", "ansible.builtin."+name+":", "ansible.legacy."+name+":")
	p.write("ansible/library/"+name, fmt.Sprintf("#!/bin/sh\n# WANT_JSON\nstate='%s/state'\n%s\n", p.dir, text), 0o755)
}

// own has files belong to the user who runs the test.
func (p *playbooks) own() {
	p.t.Helper()
	p.edit("", "owner: root", fmt.Sprintf("owner: %q", fmt.Sprint(os.Getuid())), "group: root", fmt.Sprintf("group: %q", fmt.Sprint(os.Getgid())))
}

// fails runs a playbook that is to fail with a text.
func (p *playbooks) fails(want, playbook string, args ...string) {
	p.t.Helper()
	out, err := p.try(playbook, args...)
	if one := strings.Join(strings.Fields(out), " "); err == nil || !strings.Contains(one, want) {
		p.t.Errorf("%s %v: %v, want a failure with %q\n%s", playbook, args, err, want, out)
	}
}

// run returns what the playbook printed.
func (p *playbooks) run(playbook string, args ...string) string {
	p.t.Helper()
	out, err := p.try(playbook, args...)
	if err != nil {
		p.t.Fatalf("%s: %v\n%s", playbook, err, out)
	}
	return out
}

func (p *playbooks) try(playbook string, args ...string) (string, error) {
	p.t.Helper()
	p.write("inventory.yml", `all:
  vars: {ansible_connection: local, ansible_become: false, ansible_python_interpreter: "{{ ansible_playbook_python }}"}
  children:
    slurm_controller: {hosts: {ctl1: {}}}
    slurm_nodes: {hosts: {"n[1:3]": {}}}
    slurm_submit: {}
`, 0o644)
	cmd := exec.Command("ansible-playbook", append([]string{"-i", filepath.Join(p.dir, "inventory.yml"), filepath.Join(p.dir, "ansible", playbook)}, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(p.dir, "bin")+":"+os.Getenv("PATH"), "HOME="+p.dir, "ANSIBLE_NOCOLOR=1",
		"ANSIBLE_LOCAL_TEMP="+filepath.Join(p.dir, "local"), "ANSIBLE_REMOTE_TMP="+filepath.Join(p.dir, "remote"), "LC_ALL=C.UTF-8")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// An upgrade drains a node in service and gives it back, also one that Slurm is to boot after its job; what somebody has set down or
// drained stays so, with its reason.
func TestUpgradeLeavesNodesOutOfService(t *testing.T) {
	p := newPlaybooks(t)
	p.program("sinfo", `node='' format=''
while [ $# -gt 0 ]; do
	case $1 in --nodes) node=$2; shift ;; --format) format=$2; shift ;; esac
	shift
done
case $format in
'%T|%E') echo "$(cat "$state/$node")|$(cat "$state/$node.reason")" ;;
%E) cat "$state/$node.reason" ;;
*) for node in n1 n2 n3; do echo "$node $(cat "$state/$node")"; done ;;
esac`)
	p.program("scontrol", `node=${2#nodename=} to=${3#state=}
echo "$node:$to" >>"$state/log"
[ "$to" != resume ] || { echo idle >"$state/$node"; echo none >"$state/$node.reason"; exit; }
echo drained >"$state/$node"
echo "${4#reason=}" >"$state/$node.reason"`)
	p.program("kernelctl", `[ "$1" = node ] || exit 0
proven='"phase": "steady", "running_profile": "stock", "connected": true, "attested": true'
printf '{"nodes": [{"name": "n1", %s}, {"name": "n2", %s}, {"name": "n3", %s}' "$proven" "$proven" "$proven"
echo ']}'`)
	p.program("dpkg-query", `printf 'ii 1.0-1'`)
	p.write("ansible/tasks/backup.yml", "- ansible.builtin.debug: {msg: a copy}\n", 0o644)
	p.program("squeue", "")
	p.program("kernel-broker-agent", "")
	for _, name := range []string{"slurm_plugin", "broker", "client"} {
		p.role(name, "[]\n")
	}
	p.role("agent", "- {name: Upgrade, command: 'touch "+p.dir+"/state/{{ inventory_hostname }}.upgraded'}\n")
	p.write("packages/kernel-broker-agent_2.0-1_amd64.deb", "", 0o644)
	upgrade := func(before, after map[string][2]string, want string) {
		t.Helper()
		for node, is := range before {
			p.write("state/"+node, is[0], 0o644)
			p.write("state/"+node+".reason", is[1], 0o644)
		}
		p.write("state/log", "", 0o644)
		out := p.run("upgrade.yml", "-e", "kernel_broker_packages="+p.dir+"/packages", "-e", "upgrade_serial=3", "-e", "verify_away=n2")
		did := strings.Fields(p.read("state/log"))
		if slices.Sort(did); strings.Join(did, " ") != want {
			t.Errorf("the upgrade did %q, want %q\n%s", did, want, out)
		}
		for node, want := range after {
			if got := [2]string{p.read("state/" + node), p.read("state/" + node + ".reason")}; got != want {
				t.Errorf("%s is %q after the upgrade, want %q", node, got, want)
			}
			p.read("state/" + node + ".upgraded")
		}
	}
	before := map[string][2]string{"n1": {"idle", "none"}, "n2": {"down*", "a broken DIMM"}, "n3": {"drained", "alice looks"}}
	after := maps.Clone(before)
	upgrade(before, after, "n1:drain n1:resume")

	// Under a job with a profile Slurm prints a drain, which ends with the job.
	before = map[string][2]string{"n1": {"draining@", "kprof:mitgcm@3"}, "n2": {"draining@", "alice drains kprof:"}, "n3": {"draining@", "Reboot ASAP"}}
	after = map[string][2]string{"n1": {"idle", "none"}, "n2": before["n2"], "n3": {"idle", "none"}}
	upgrade(before, after, "n1:drain n1:resume n3:drain n3:resume")
}

// A user of slurmdbd without the level gets it; one that slurmdbd does not have is added with it.
func TestBrokerLevel(t *testing.T) {
	p := newPlaybooks(t)
	p.program("sacctmgr", `[ "$1" = --noheader ] || { echo "$*" >>"$state/log"; exit; }
cat "$state/${5#name=}" 2>/dev/null || true`)
	p.write("state/n2", "None\n", 0o644)
	p.write("state/n3", "Administrator\n", 0o644)
	p.write("ansible/level.yml", `- hosts: slurm_nodes
  gather_facts: false
  serial: 1
  tasks:
    - ansible.builtin.include_role: {name: broker, tasks_from: level}
      vars: {broker_user: "{{ inventory_hostname }}"}
`, 0o644)
	out := p.run("level.yml")
	want := "--immediate add user n1 account=root adminlevel=Admin\n--immediate modify user n2 set adminlevel=Admin"
	if got := p.read("state/log"); got != want {
		t.Errorf("sacctmgr was asked to\n%s\nwant\n%s\n%s", got, want, out)
	}
}

// A node's name with a fault in it is an error, since Ansible itself skips a play without hosts; so is a host that is no node, and
// more of them than somebody removes on purpose.
func TestRemoveNodeNeedsNode(t *testing.T) {
	p := newPlaybooks(t)
	p.program("kernelctl", `echo "$*" >>"$state/log"; exit 1`)
	p.fails("names no host of the inventory", "remove_node.yml")
	p.fails("names no host of the inventory", "remove_node.yml", "-e", "remove=n77")
	p.fails("ctl1 is no node", "remove_node.yml", "-e", "remove=ctl1")
	p.fails("ctl1 is no node", "remove_node.yml", "-e", "remove=all", "--limit", "ctl1")
	p.fails("is one of more than 2 hosts", "remove_node.yml", "-e", "remove=slurm_nodes", "-e", "remove_most=2")
	if _, err := os.Stat(filepath.Join(p.dir, "state/log")); err == nil {
		t.Errorf("kernelctl was asked to %s", p.read("state/log"))
	}
}
