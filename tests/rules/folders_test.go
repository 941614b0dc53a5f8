// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"os"
	"os/user"
	"slices"
	"strings"
	"testing"
)

// The units may write to the folders of their configurations, and to no others when those are gone.
func TestUnitsMayWriteToConfiguredFolders(t *testing.T) {
	p := newPlaybooks(t)
	p.own()
	_, tasks, _ := strings.Cut(p.read("ansible/roles/broker/tasks/main.yml"), "- name: Create the unit's drop-in folder\n")
	tasks, _, found := strings.Cut(tasks, "- name: Create the broker's folder\n")
	if !found {
		t.Fatal("the role broker has no drop-in")
	}
	p.write("ansible/roles/broker/tasks/unit.yml", "- name: Create the unit's drop-in folder\n"+tasks, 0o644)
	p.edit("roles", "/etc/systemd/system", p.dir+"/units")
	p.edit("roles/agent", "--owner=root, --group=root, ", "")
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	p.module("systemd", `echo '{"changed": true}'`)
	p.write("ansible/folders.yml", `- hosts: n1
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: agent, tasks_from: folders}
    - ansible.builtin.include_role: {name: broker, tasks_from: unit}
`, 0o644)
	args := []string{"-e", "{broker_user: '" + me.Uid + "', broker_group: '" + me.Gid + "'}"}
	far := p.dir + "/far"
	moved := append(slices.Clone(args), "-e", `{agent_config: {cache: {dir: `+far+`/cache}, tls: {dir: /var/lib/kernel-broker/keys}, trust: {state: `+far+`/state/floors}},
broker_config: {data_dir: `+far+`/data, audit: {dir: `+far+`/log}}}`)
	p.run("folders.yml", append(moved, "--check")...)
	p.run("folders.yml", moved...)
	if got := p.read("units/kernel-broker-agent.service.d/folders.conf"); !strings.HasSuffix(got, "[Service]\nReadWritePaths="+far+"/cache "+far+"/state") {
		t.Errorf("the agent's drop-in is\n%s", got)
	}
	if got := p.read("units/kernel-broker.service.d/user.conf"); !strings.Contains(got+"\n", "\nReadWritePaths="+far+"/data "+far+"/log\n") {
		t.Errorf("the broker's drop-in is\n%s", got)
	}
	for folder, mode := range map[string]os.FileMode{"cache": 0o755, "state": 0o755, "data": 0o755, "log": 0o750} {
		if is, err := os.Stat(far + "/" + folder); err != nil || is.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", folder, is, err)
		}
	}
	if out := p.run("folders.yml", moved...); !strings.Contains(out, "changed=0") {
		t.Errorf("the second run changes something\n%s", out)
	}

	p.run("folders.yml", args...)
	if _, err := os.Stat(p.dir + "/units/kernel-broker-agent.service.d/folders.conf"); err == nil {
		t.Error("the agent's drop-in stays")
	}
	if got := p.read("units/kernel-broker.service.d/user.conf"); strings.Contains(got, "ReadWritePaths") {
		t.Errorf("the broker's drop-in is\n%s", got)
	}
}
