// SPDX-License-Identifier: Apache-2.0

//go:build lab

package systemd

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// ansible runs the repository's playbooks on the machines.
type ansible struct {
	dir, top string
	limit    time.Duration // of a playbook
	machines []*machine
	vars     map[string]any // of all hosts in the inventory
}

// sshConfig writes the file with which "ssh -F FILE NAME" reaches each machine.
func (a *ansible) sshConfig(t *testing.T, key string) {
	t.Helper()
	text := "Host *\n\tUser root\n\tIdentityFile " + key + "\n\tIdentitiesOnly yes\n\tStrictHostKeyChecking no\n\tUserKnownHostsFile /dev/null\n" +
		"\tLogLevel ERROR\n\tConnectTimeout 120\n\tServerAliveInterval 30\n\tServerAliveCountMax 20\n"
	for _, m := range a.machines {
		address, port, err := net.SplitHostPort(m.ssh)
		if err != nil {
			t.Fatal(err)
		}
		text += fmt.Sprintf("Host %s\n\tHostName %s\n\tPort %s\n", m.name, address, port)
	}
	write(t, a.sshFile(), text, 0o644)
}

func (a *ansible) sshFile() string { return filepath.Join(a.dir, "ssh_config") }

// inventory writes the inventory, without the machines that are away.
func (a *ansible) inventory(t *testing.T, away ...*machine) {
	t.Helper()
	vars := maps.Clone(a.vars)
	maps.Copy(vars, map[string]any{
		"ansible_user":               "root",
		"ansible_ssh_common_args":    "-F " + a.sshFile(),
		"ansible_ssh_pipelining":     true,
		"ansible_python_interpreter": "/usr/bin/python3",
	})
	hosts, groups := map[string]any{}, map[string]any{}
	for _, m := range a.machines {
		if slices.Contains(away, m) {
			continue
		}
		hosts[m.name] = map[string]string{"slurm_address": m.address}
	}
	for _, m := range a.machines {
		for _, name := range m.groups {
			if groups[name] == nil {
				groups[name] = map[string]any{"hosts": map[string]any{}}
			}
			if hosts[m.name] != nil {
				groups[name].(map[string]any)["hosts"].(map[string]any)[m.name] = map[string]any{}
			}
		}
	}
	// JSON is YAML. Ansible sorts no hosts: the first of a group is the first of its file, and JSON has them by their names.
	text, err := json.MarshalIndent(map[string]any{"all": map[string]any{"vars": vars, "hosts": hosts, "children": groups}}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	write(t, a.inventoryFile(), string(text)+"\n", 0o644)
}

func (a *ansible) inventoryFile() string { return filepath.Join(a.dir, "inventory.yml") }

// logFile has the output of the playbook that runs, for who watches.
func (a *ansible) logFile() string { return filepath.Join(a.dir, "ansible.log") }

var recap = regexp.MustCompile(`^(\S+) +: ok=(\d+) +changed=(\d+) +unreachable=(\d+) +failed=(\d+)`)

// play runs a playbook to its end, and returns how much it changed on each host.
func (a *ansible) play(t *testing.T, playbook string, args ...string) map[string]int {
	t.Helper()
	ctx, cancel := context.WithTimeout(interrupt(), a.limit)
	defer cancel()
	args = append([]string{"-i", a.inventoryFile(), filepath.Join(a.top, "ansible", playbook)}, args...)
	cmd := exec.CommandContext(ctx, "ansible-playbook", args...)
	cmd.Env = append(os.Environ(), "ANSIBLE_NOCOLOR=1", "ANSIBLE_TIMEOUT=120", "ANSIBLE_LOCAL_TEMP="+filepath.Join(a.dir, "ansible"),
		fmt.Sprintf("ANSIBLE_FORKS=%d", len(a.machines)),
		// Other tests have machines of the same names. A node that has booted meanwhile has forgotten its connections.
		"ANSIBLE_SSH_CONTROL_PATH_DIR="+filepath.Join(a.dir, "cp"), "ANSIBLE_SSH_RETRIES=5",
		// Without compression, which an emulated processor pays for.
		"ANSIBLE_SSH_ARGS=-o ControlMaster=auto -o ControlPersist=60s")
	cmd.WaitDelay = time.Minute
	started := time.Now()
	log, err := os.Create(a.logFile())
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	err = cmd.Run()
	_ = log.Close()
	out := contents(t, a.logFile())
	if err != nil {
		t.Fatalf("ansible-playbook %s: %v\n%s", strings.Join(args[2:], " "), err, out)
	}
	changed := map[string]int{}
	for line := range strings.Lines(string(out)) {
		if found := recap.FindStringSubmatch(line); found != nil {
			var n int
			_, _ = fmt.Sscan(found[3], &n) // digits
			changed[found[1]] = n
		}
	}
	if len(changed) == 0 {
		t.Fatalf("ansible-playbook has no recap:\n%s", out)
	}
	t.Logf("%s %s: %s, changed %v", playbook, strings.Join(args[3:], " "), time.Since(started).Round(time.Second), changed)
	return changed
}

// all fails the test if a host of the inventory is not in a playbook's result.
func (a *ansible) all(t *testing.T, changed map[string]int) {
	t.Helper()
	if len(changed) != len(a.machines) {
		t.Fatalf("the playbook ran on %v, and not on %d hosts", slices.Sorted(maps.Keys(changed)), len(a.machines))
	}
}

// unchanged runs a playbook that is to change nothing.
func (a *ansible) unchanged(t *testing.T, playbook string, args ...string) {
	t.Helper()
	changed := a.play(t, playbook, args...)
	a.all(t, changed)
	for host, n := range changed {
		if n != 0 {
			t.Errorf("%s %v changes %d things on %s", playbook, args, n, host)
		}
	}
	if t.Failed() {
		t.Logf("%s", contents(t, a.logFile()))
	}
}
