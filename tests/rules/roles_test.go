// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A key that a cluster has is replaced only when somebody says so, and before any host has another.
func TestMungeKeyOfCluster(t *testing.T) {
	p := newPlaybooks(t)
	p.noPackages()
	p.module("systemd", `echo '{"changed": false}'`)
	p.program("systemctl", systemctl)
	p.edit("roles/munge/tasks/key.yml", "chown munge:munge", "touch",
		"    src: /etc/munge/munge.key\n  register: munge_key\n", "    src: "+p.dir+"/{{ munge_key_host }}/key\n  register: munge_key\n",
		"/etc/munge/munge.key", p.dir+"/{{ inventory_hostname }}/key")
	p.edit("roles/munge/defaults", "{{ slurm_conf_dir | default('/etc/slurm') }}", p.dir+"/{{ inventory_hostname }}")
	hosts := []string{"ctl1", "n1", "n2", "n3"}
	for _, host := range hosts {
		p.write(host+"/key", "key of "+host, 0o600)
	}
	has := func(when string, want string) {
		t.Helper()
		for _, host := range hosts {
			if got := p.read(host + "/key"); got != want {
				t.Errorf("%s: %s has the key %q, want %q", when, host, got, want)
			}
		}
	}
	munge := []string{"--tags", "munge"}
	p.run("site.yml", munge...)
	has("a new cluster", "key of ctl1")
	p.write("n2/slurm.conf", "", 0o644)
	p.run("site.yml", munge...)

	p.write("ctl1/key", "\xff\x00new", 0o600)
	p.fails("n2 is in a cluster, and its MUNGE key is not that of ctl1", "site.yml", munge...)
	p.write("ctl1/key", "key of ctl1", 0o600)
	has("a new controller", "key of ctl1")

	p.write("site.key", "\xff\x00site", 0o600)
	file := append(slices.Clone(munge), "-e", "munge_key_file="+p.dir+"/site.key")
	p.fails("n2 is in a cluster, and its MUNGE key is not that of "+p.dir+"/site.key", "site.yml", file...)
	p.run("site.yml", append(file, "-e", "munge_replace_key=true")...)
	has("the site's key", "\xff\x00site")
	if out := p.run("site.yml", file...); strings.Contains(out, "changed: [") {
		t.Errorf("the second run changes something:\n%s", out)
	}
}

// Debian's packages need a mirror only where they are missing.
func TestDebianPackagesWithoutMirror(t *testing.T) {
	p := newPlaybooks(t)
	p.module("apt", `echo "$(cat "$1")" >>"$state/log"
case $(cat "$1") in
*'"update_cache": true'*) echo '{"failed": true, "msg": "the mirror is away"}' ;;
*) echo '{"changed": false}' ;;
esac`)
	p.write("state/log", "", 0o644)
	p.write("ansible/debian.yml", `- hosts: n1
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: package, tasks_from: debian}
      vars: {package_debian: [munge]}
    - ansible.builtin.include_role: {name: package}
      vars: {package_names: [kernel-broker-agent], kernel_broker_version: "2.0", package_change_version: true}
`, 0o644)
	out := p.run("debian.yml")
	if log := p.read("state/log"); strings.Count(log, "\n") != 5 || !strings.Contains(log, `"cache_valid_time": 86400`) {
		t.Errorf("apt was asked for\n%s\n%s", log, out)
	}
}

// apt leaves a version alone that is installed: other contents under its name are an error, not nothing.
func TestPackageOfSameVersion(t *testing.T) {
	p := newPlaybooks(t)
	p.own()
	p.module("apt", `echo '{"changed": false}'`)
	p.program("dpkg-query", `echo 2.0-1`)
	p.program("dpkg-deb", `[ "$1" = --ctrl-tarfile ] || { echo 2.0-1; exit; }
cp "$2" "$state/md5sums" && tar --create --directory "$state" ./md5sums`)
	p.edit("roles/package/vars", "/var/lib/dpkg/info", p.dir+"/info")
	p.write("state/none", "", 0o644)
	p.write("packages/kernel-broker_2.0-1_amd64.deb", "the sums\n", 0o644)
	p.write("ansible/deb.yml", `- hosts: n1
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: package}
      vars: {package_names: [kernel-broker], package_change_version: true}
`, 0o644)
	args := []string{"-e", "kernel_broker_packages=" + p.dir + "/packages", "-e", "package_folder=" + p.dir + "/kept"}
	p.run("deb.yml", args...) // not installed yet
	p.write("info/kernel-broker.md5sums", "the sums\n", 0o644)
	p.run("deb.yml", args...)
	p.write("info/kernel-broker.md5sums", "other sums\n", 0o644)
	p.fails("same version, other contents: n1 has kernel-broker", "deb.yml", args...)
}

// An address of a host is used wherever the host is named to others.
func TestAddressOfController(t *testing.T) {
	p := newPlaybooks(t)
	p.write("ansible/host_vars/ctl1.yml", "slurm_address: 10.1.0.1\n", 0o644)
	p.noPackages()
	for _, role := range []string{"agent", "client"} {
		p.write("ansible/roles/"+role+"/tasks/address.yml", "- ansible.builtin.debug: {msg: '"+role+" {{ kernel_broker_address }}'}\n", 0o644)
	}
	p.write("ansible/roles/slurm/tasks/address.yml", "- ansible.builtin.debug: {msg: 'slurm {{ slurm_settings.AccountingStorageHost }}'}\n", 0o644)
	// A password hides slurmdbd.conf from ansible's log, wherever it comes from.
	p.write("ansible/roles/slurmdbd/tasks/address.yml", "- ansible.builtin.debug: {msg: 'secret {{ slurmdbd_secret }}'}\n", 0o644)
	p.write("ansible/address.yml", `- hosts: n1
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: "{{ item }}", tasks_from: address}
      loop: [agent, client, slurm, slurmdbd]
      vars: {slurm_dbd: "{{ dbd }}", slurmdbd_conf: {StoragePass: x}}
`, 0o644)
	out := p.run("address.yml", "-e", "{dbd: [ctl1]}")
	for _, want := range []string{`"agent 10.1.0.1:7440"`, `"client 10.1.0.1:7440"`, `"slurm 10.1.0.1"`, `"secret True"`} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s\n%s", want, out)
		}
	}
	if err := os.Remove(filepath.Join(p.dir, "ansible/host_vars/ctl1.yml")); err != nil {
		t.Fatal(err)
	}
	out = p.run("address.yml", "-e", "{dbd: [db.example.org]}")
	for _, want := range []string{`"agent ctl1:7440"`, `"client ctl1:7440"`, `"slurm db"`} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s\n%s", want, out)
		}
	}
}

const systemctl = `unit=$(for arg; do last=$arg; done; echo "$last")
case "$*" in
*is-active*) test -e "$state/$unit" ;;
*show*) cat "$state/$unit" ;;
*try-restart*) echo "restart $unit" >>"$state/log"; date --utc '+%a %Y-%m-%d %H:%M:%S.%6N UTC' >"$state/$unit" ;;
esac`

// The module starts and restarts units for the program above to see.
const systemd = `name=$(sed 's/.*"name": "\([^"]*\)".*/\1/' "$1") changed=false
case $(cat "$1") in
*'"_ansible_check_mode": true'*) ;;
*'"state": "started"'*) [ -e "$state/$name" ] || { changed=true; echo "start $name" >>"$state/log"; } ;;
*'"state": "stopped"'*) echo "stop $name" >>"$state/log"; rm -f "$state/$name"; echo '{"changed": true}'; exit ;;
*'"state": "restarted"'*) changed=true; echo "restart $name" >>"$state/log" ;;
*'"state": "reloaded"'*) changed=true; echo "reload $name" >>"$state/log" ;;
esac
[ $changed = false ] || date --utc '+%a %Y-%m-%d %H:%M:%S.%6N UTC' >"$state/$name"
echo "{\"changed\": $changed}"`

// newSlurm is a cluster of which only the role slurm is real.
func newSlurm(t *testing.T) (*playbooks, []string) {
	p := newPlaybooks(t)
	p.own()
	p.noPackages()
	for _, role := range []string{"munge", "broker", "catalog", "agent", "slurm_plugin"} {
		p.role(role, "[]\n")
	}
	p.role("client", "- ansible.builtin.debug: {msg: 'snapshot {{ client_snapshot }}'}\n")
	p.program("systemctl", systemctl)
	p.module("systemd", systemd)
	p.program("hostname", `cat "$state/hostname" 2>/dev/null || echo ctl1`)
	p.program("scontrol", `case $1 in
ping) echo 'Slurmctld(primary) at ctl1 is UP' ;;
show) echo "$3" ;;
esac`)
	p.program("squeue", `echo "$*" >>"$state/squeue"; cat "$state/jobs" 2>/dev/null || true`)
	p.edit("roles/slurm", "/var/l", p.dir+"/var/l", "/usr/libexec", p.dir+"/libexec")
	p.write("var/lib/empty", "", 0o644)
	p.write("var/log/empty", "", 0o644)
	p.write("state/log", "", 0o644)
	user, err := exec.Command("id", "-un").Output()
	if err != nil {
		t.Fatal(err)
	}
	return p, []string{"--tags", "slurm,agent,client", "-e", "slurm_conf_dir=" + p.dir + "/slurm", "-e", "slurm_user=" + strings.TrimSpace(string(user)),
		"-e", "slurm_node=CPUs=1"}
}

// A daemon that is older than its configuration is restarted, whatever stopped the run that wrote it; slurmd not before its
// epilog is there.
func TestDaemonsOlderThanConfiguration(t *testing.T) {
	p, args := newSlurm(t)
	p.role("slurm_plugin", "- ansible.builtin.fail: {msg: broken off}\n")
	p.fails("broken off", "site.yml", append(args[2:], "--limit", "ctl1", "-e", "{slurm_conf: {DisableRootJobs: true, KillWait: 30}}")...)
	if got := p.read("state/log"); got != "restart slurmctld" {
		t.Errorf("a run that fails does %q, want the handler's restart", got)
	}
	p.role("slurm_plugin", "[]\n")
	if conf := p.read("slurm/slurm.conf"); !strings.Contains(conf, "\nDisableRootJobs=YES\n") || !strings.Contains(conf, "\nKillWait=30\n") {
		t.Errorf("slurm.conf is\n%s", conf)
	}
	controller := append(slices.Clone(args), "--limit", "ctl1", "-e", "{slurm_conf: {DisableRootJobs: true, KillWait: 30}}")
	p.write("state/slurmctld", "Thu 2020-01-02 03:04:05.678901 UTC\n", 0o644)
	if out := p.run("site.yml", append(controller, "--check")...); !strings.Contains(out, "changed=1 ") || p.read("state/log") != "restart slurmctld" {
		t.Errorf("check mode does %q\n%s", p.read("state/log"), out)
	}
	p.run("site.yml", controller...)
	out := p.run("site.yml", controller...)
	if got := p.read("state/log"); got != "restart slurmctld\nrestart slurmctld" || !strings.Contains(out, "changed=0") {
		t.Errorf("a daemon older than its configuration: %q\n%s", got, out)
	}

	p.write("state/hostname", "n1", 0o644)
	p.write("state/log", "", 0o644)
	p.write("state/slurmd", "Thu 2020-01-02 03:04:05.678901 UTC\n", 0o644)
	node := append(slices.Clone(args), "--limit", "n1", "-e", "{slurm_conf: {DisableRootJobs: true, KillWait: 30}}")
	p.run("site.yml", node...)
	if got := p.read("state/log"); got != "" {
		t.Errorf("without its epilog: %q", got)
	}
	epilog := p.dir + "/libexec/kernel-broker/epilog"
	p.role("agent", "- {name: Install, command: install -D /bin/true "+epilog+", args: {creates: "+epilog+"}}\n")
	p.run("site.yml", node...)
	out = p.run("site.yml", node...)
	if got := p.read("state/log"); got != "restart slurmd" || !strings.Contains(out, "changed=0") {
		t.Errorf("with its epilog: %q\n%s", got, out)
	}
	if !strings.Contains(out, "snapshot False") {
		t.Errorf("a node would get the snapshot from the role, too\n%s", out)
	}
}

// A node with jobs does not leave slurm.conf, and nothing is changed.
func TestNodeWithJobsStays(t *testing.T) {
	p, args := newSlurm(t)
	args = append(args, "--limit", "ctl1")
	p.run("site.yml", args...)
	before := p.read("slurm/slurm.conf")
	if _, err := os.Stat(filepath.Join(p.dir, "state/squeue")); err == nil {
		t.Error("squeue was asked although no node leaves")
	}
	p.write("state/jobs", "12 on n2\n", 0o644)
	two := append(slices.Clone(args), "-e", "{slurm_nodes: [n1, n3]}")
	p.fails("n2 would leave slurm.conf, with jobs that would be lost: 12 on n2. Put the node back into the inventory, and run remove_node.yml first",
		"site.yml", two...)
	if got := p.read("slurm/slurm.conf"); got != before {
		t.Errorf("slurm.conf was changed to\n%s", got)
	}
	p.write("state/jobs", "", 0o644)
	p.run("site.yml", two...)
	if got := p.read("slurm/slurm.conf"); strings.Contains(got, "n2") {
		t.Errorf("slurm.conf is\n%s", got)
	}
}

func TestSlurmRefusesInventory(t *testing.T) {
	p, args := newSlurm(t)
	args = append(args, "--limit", "ctl1", "--check")
	p.fails("ctl1 is in slurm_controller and in slurm_nodes", "site.yml", append(args, "-e", "{slurm_nodes: [n1, ctl1]}")...)
	p.write("state/hostname", "server7", 0o644)
	p.fails("ctl1 calls itself server7 (hostname -s)", "site.yml", args...)
	p.fails("n1, n2, n3: no slurm_node", "site.yml", append(args[:6:6], args[8:]...)...)
}

// What verify.yml accepts of a node, and what it names.
func TestVerify(t *testing.T) {
	p := newPlaybooks(t)
	p.program("sinfo", `cat "$state/sinfo"`)
	p.program("kernelctl", `case "$*" in
*json) cat "$state/nodes" ;;
esac`)
	p.write("ansible/all.yml", `- import_playbook: verify.yml
  vars: {verify_retries: 1, verify_away: "{{ away | default([]) }}"}
`, 0o644)
	proven := `"phase": "steady", "connected": true, "attested": true`
	p.write("state/nodes", `{"nodes": [{"name": "n1", `+proven+`}, {"name": "n2", "phase": "booting", "connected": false, "attested": false},
{"name": "n3", "phase": "unproven", "connected": false, "attested": false}]}`, 0o644)
	p.write("state/sinfo", "n1 idle\nn2 mix#\nn3 idle~\nn1 idle\n", 0o644)
	p.edit("verify.yml", "delay: 4", "delay: 0")
	p.run("all.yml")
	p.write("state/sinfo", "n1 reboot^\nn2 boot^\nn3 idle~\n", 0o644)
	p.run("all.yml")
	p.write("state/sinfo", "n1 idle\nn2 alloc\nn3 idle\n", 0o644)
	p.fails("with a proven kernel: n3;", "all.yml")
	p.write("state/sinfo", "n1 idle\nn2 down*\nother unk\n", 0o644)
	p.fails("Slurm does not have n3 ['n2 down*', 'other unk']", "all.yml")
	p.write("state/sinfo", "n1 drain\nn2 drain*\n", 0o644)
	p.run("all.yml", "-e", "away=n2,n3")
}

// The certificates of a new authority can be brought without another one, and nodes get tokens only when they are named.
func TestRotateInParts(t *testing.T) {
	p := newPlaybooks(t)
	p.own()
	p.noPackages()
	p.edit("roles/client", "/var/lib/kernel-broker", p.dir+"/data", "/etc/kernel-broker", p.dir)
	p.edit("roles/agent", "/var/lib/kernel-broker/tls", p.dir+"/tls", "'/etc/kernel-broker/token'", "'"+p.dir+"/' ~ inventory_hostname ~ '.token'",
		"    state: absent\n    timeout:", "    state: present\n    timeout:")
	p.program("kernelctl", `echo "$*" >>"$state/log"
case $2 in
certificates) echo '{"nodes": [{"node": "n1", "certificates": [{}]}, {"node": "n2", "certificates": [{}]}, {"node": "n3", "certificates": [{}]}]}' ;;
token) shift 4; for node; do echo "$node.secret"; done ;;
esac`)
	p.write("tls/node.pem", "", 0o644)
	p.write("state/log", "", 0o644)
	p.fails("rotate.yml --tags distribute, which makes no other authority", "rotate.yml")
	p.write("data/ca.pem", "authorities", 0o644)
	p.run("rotate.yml", "--tags", "distribute")
	if got := p.read("state/log"); got != "authority rotate" || p.read("ca.pem") != "authorities" {
		t.Errorf("kernelctl was asked to %q", got)
	}
	out := p.run("rotate.yml", "--tags", "nodes", "-vvv")
	if got := p.read("state/log"); got != "authority rotate\nnode certificates --output json\nnode token --ttl 1h n1 n2 n3" {
		t.Errorf("kernelctl was asked to %q", got)
	}
	if got := p.read("n2.token"); got != "n2.secret" || strings.Contains(out, "secret") {
		t.Errorf("the token is %q\n%s", got, out)
	}
}

// Before another version the store of a broker that stands still is copied; nodes come before the broker only when asked for.
func TestUpgradeKeepsStore(t *testing.T) {
	p := newPlaybooks(t)
	p.own()
	for _, role := range []string{"slurm_plugin", "client"} {
		p.role(role, "[]\n")
	}
	p.role("package", "- ansible.builtin.debug: {msg: 'compares {{ package_names | first }}'}\n")
	p.role("broker", "- {name: Upgrade, command: 'sh -c \"echo upgrade broker >>"+p.dir+"/state/log\"'}\n")
	p.role("agent", "- {name: Upgrade, command: 'sh -c \"echo upgrade {{ inventory_hostname }} >>"+p.dir+"/state/log\"'}\n")
	p.write("ansible/tasks/drain.yml", "- ansible.builtin.debug: {msg: drained}\n", 0o644)
	p.write("ansible/verify.yml", "- {hosts: ctl1, gather_facts: false}\n", 0o644)
	p.module("systemd", systemd)
	p.edit("tasks/backup.yml", "/etc/kernel-broker", p.dir)
	p.program("dpkg-query", `printf 'ii 1.0-1'`)
	p.program("sinfo", "")
	p.program("kernelctl", "")
	p.program("kernel-broker-agent", "")
	p.write("broker.yaml", "data_dir: "+p.dir+"/data\netcd: {endpoints: []}\n", 0o644)
	p.write("data/etcd/member", "store", 0o600)
	p.write("data/artifacts/kernel", "large", 0o600)
	p.write("state/log", "", 0o644)
	for _, name := range []string{"kernel-broker_", "kernel-broker-agent_"} {
		p.write("packages/"+name+"2.0-1_amd64.deb", "", 0o644)
		p.write("old/"+name+"1.0-1_amd64.deb", "", 0o644)
	}
	backup := []string{"-e", "upgrade_backup=" + p.dir + "/backup", "-e"}
	out := p.run("upgrade.yml", append(backup, "kernel_broker_packages="+p.dir+"/old")...)
	if got := p.read("state/log"); got != "upgrade broker" || strings.Count(out, "compares kernel-broker-agent") != 3 {
		t.Errorf("the same version: %q\n%s", got, out)
	}
	p.write("state/log", "", 0o644)
	p.run("upgrade.yml", append(backup, "kernel_broker_packages="+p.dir+"/packages", "-e", "upgrade_nodes_first=true", "--limit", "ctl1,n1")...)
	if got := p.read("state/log"); got != "upgrade n1\nstop kernel-broker\nstart kernel-broker\nupgrade broker" {
		t.Errorf("the upgrade did %q", got)
	}
	list, err := exec.Command("tar", "--list", "--file", filepath.Join(p.dir, "backup/1.0-1.tar")).Output()
	if err != nil || !strings.Contains(string(list), "./etcd/member\n") || strings.Contains(string(list), "artifacts") {
		t.Errorf("%v: the copy has\n%s", err, list)
	}
	if is, err := os.Stat(filepath.Join(p.dir, "backup")); err != nil || is.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", is, err)
	}

	p.write("state/log", "", 0o644)
	p.run("upgrade_nodes.yml", append(backup, "kernel_broker_packages="+p.dir+"/packages")...)
	if got := p.read("state/log"); got != "upgrade n1\nupgrade n2\nupgrade n3" {
		t.Errorf("the upgrade of nodes did %q", got)
	}

	// A node that fails ends the upgrade, and the first node is alone.
	p.role("agent", "- {name: Upgrade, command: 'sh -c \"echo upgrade {{ inventory_hostname }} >>"+p.dir+"/state/log; false\"'}\n")
	p.write("state/log", "", 0o644)
	p.fails("non-zero return code", "upgrade_nodes.yml", append(backup, "kernel_broker_packages="+p.dir+"/packages")...)
	if got := p.read("state/log"); got != "upgrade n1" {
		t.Errorf("the upgrade did %q", got)
	}
	p.write("ansible/host_vars/n1.yml", "{ansible_connection: ssh, ansible_host: 127.0.0.1, ansible_port: 1}\n", 0o644)
	p.fails("n1 failed or is away, so the other nodes keep", "upgrade_nodes.yml", append(backup, "kernel_broker_packages="+p.dir+"/packages", "-e", "upgrade_wait=1")...)
	if got := p.read("state/log"); got != "upgrade n1" {
		t.Errorf("with a node that is away the upgrade did %q", got)
	}
}

// A revoked node cannot prove its kernel, but its job goes on to its end.
func TestRemoveRevokedNodeWaitsForJob(t *testing.T) {
	p := newPlaybooks(t)
	p.edit("tasks/drain.yml", "delay: 30", "delay: 0")
	p.write("ansible/tasks/remove_agent.yml", "- {name: Remove, command: 'sh -c \"echo remove >>"+p.dir+"/state/log\"'}\n", 0o644)
	p.program("kernelctl", `echo '{"nodes": [{"node": "n1", "revoked_at": "2026-11-26T00:00:00Z", "certificates": []}]}'`)
	p.program("sinfo", "echo drained")
	p.program("squeue", `echo squeue >>"$state/log"; [ -e "$state/asked" ] || { echo 12; touch "$state/asked"; }`)
	p.write("state/log", "", 0o644)
	p.run("remove_node.yml", "-e", "remove=n1")
	if got := p.read("state/log"); got != "squeue\nsqueue\nremove" {
		t.Errorf("removing did %q", got)
	}
}

// What left the folder of profiles is not registered again; the policy in force is that of its file, which the inventory knows.
func TestCatalogAndPolicyFollowFiles(t *testing.T) {
	p := newPlaybooks(t)
	p.own()
	p.noPackages()
	p.program("kernelctl", `case $1 in
policy) cat "$state/policy" ;;
profile) ls "$3/profiles" >"$state/applied" ;;
esac`)
	p.module("systemd", systemd)
	p.program("systemctl", systemctl)
	p.write("catalog/profiles/new.yaml", "versions: []\n", 0o644)
	p.write("host/profiles/old.yaml", "versions: []\n", 0o644)
	p.write("state/log", "", 0o644)
	p.write("policy.yaml", "administrators: {users: [root]}\n", 0o644)
	p.write("ansible/follow.yml", `- hosts: ctl1
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: catalog}
`, 0o644)
	p.run("follow.yml", "-e", "catalog_folder="+p.dir+"/catalog", "-e", "catalog_host_folder="+p.dir+"/host", "-e", "catalog_kernels="+p.dir+"/catalog")
	if got := p.read("state/applied"); got != "new.yaml" {
		t.Errorf("profiles on the host: %s", got)
	}

	tasks, err := os.ReadFile(filepath.Join(p.dir, "ansible/roles/broker/tasks/main.yml"))
	if err != nil {
		t.Fatal(err)
	}
	_, last, _ := strings.Cut(string(tasks), "- name: Start the broker\n")
	p.write("ansible/roles/broker/tasks/end.yml", "- name: Start the broker\n"+last, 0o644)
	p.edit("roles/broker", "/etc/kernel-broker", p.dir)
	p.write("ansible/follow.yml", `- hosts: ctl1
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: broker, tasks_from: end}
`, 0o644)
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	p.write("ansible/valid.yml", `- hosts: ctl1
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: broker, tasks_from: validate}
`, 0o644)
	valid := []string{"-e", "broker_slurm_user=" + me.Username}
	p.fails("ctl1 has "+p.dir+"/policy.yaml, and the inventory has no broker_policy", "valid.yml", valid...)
	p.run("valid.yml", append(valid, "-e", "{broker_config: {policy: "+p.dir+"/policy.yaml}}")...)

	policy := []string{"-e", "{broker_policy: {}}"}
	p.run("valid.yml", append(valid, policy...)...)
	p.write("state/policy", `{"digest": "sha256:0"}`, 0o644)
	p.run("follow.yml", policy...)
	sum, err := exec.Command("sha256sum", filepath.Join(p.dir, "policy.yaml")).Output()
	if err != nil {
		t.Fatal(err)
	}
	p.write("state/policy", `{"digest": "sha256:`+string(sum[:64])+`"}`, 0o644)
	out := p.run("follow.yml", policy...)
	if got := p.read("state/log"); got != "start kernel-broker\nreload kernel-broker" || !strings.Contains(out, "changed=0") {
		t.Errorf("the broker was told %q\n%s", got, out)
	}
}

// Check mode says of a bare host what it cannot show.
func TestCheckModeOnBareHosts(t *testing.T) {
	p := newPlaybooks(t)
	p.module("apt", `echo '{"changed": true}'`)
	p.program("hostname", `case $PWD in *) echo ctl1 ;; esac`)
	p.edit("roles", "/etc/", p.dir+"/etc/", "/usr/sbin/kernel-broker", p.dir+"/kernel-broker", "/usr/bin/kernelctl", p.dir+"/kernelctl",
		"/usr/lib/kernel-broker", p.dir+"/plugin")
	p.edit("", "The host has its name of the inventory\n", "Any name\n", "slurm_hostname.stdout == inventory_hostname_short", "true")
	out := p.run("site.yml", "--check", "-e", "slurm_node=CPUs=1", "-e", "kernel_broker_version=2.0")
	for _, want := range []string{"ctl1 has no " + p.dir + "/etc/munge/munge.key yet", "n1 has no " + p.dir + "/etc/slurm/slurm.conf yet"} {
		if one := strings.Join(strings.Fields(out), " "); !strings.Contains(one, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	out = p.run("site.yml", "--check", "-e", "slurm_node=CPUs=1", "-e", "kernel_broker_version=2.0", "--tags", "slurm_plugin,broker,catalog,agent,client")
	if n := strings.Count(out, "is left out from here on"); n != 5 {
		t.Errorf("%d hosts and plays are left out, want 5\n%s", n, out)
	}
}
