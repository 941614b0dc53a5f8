// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"os/user"
	"strings"
	"testing"
)

// Brokers on several controllers know each other, and all others know both of them.
func TestSeveralControllers(t *testing.T) {
	p := newPlaybooks(t)
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	p.write("ansible/host_vars/ctl1.yml", "slurm_address: 10.1.0.1\n", 0o644)
	p.write("ansible/host_vars/ctl2.yml", "slurm_address: fd00::2\n", 0o644)
	for _, role := range []string{"agent", "client"} {
		p.write("ansible/roles/"+role+"/tasks/address.yml", "- ansible.builtin.debug: {msg: '"+role+" {{ kernel_broker_address }}'}\n", 0o644)
	}
	p.write("ansible/roles/broker/tasks/config.yml", `- ansible.builtin.copy:
    content: "{{ {'broker': broker_own, 'client': broker_client_own, 'policy': broker_policy_own} | to_nice_json }}"
    dest: "`+p.dir+`/{{ inventory_hostname }}.json"
    mode: "0644"
`, 0o644)
	// The hosts of the test have one disk, so the second one finds the first one's key.
	p.program("runuser", `shift 3; echo "$*" >>"${state%/state}/store.key"`)
	const members = "- {name: ctl2, groups: [slurm_controller, kernel_broker_etcd]}\n        - {name: e2, groups: [kernel_broker_etcd], etcd_address: 'fd00::2'}\n        - {name: ctl1, groups: [kernel_broker_etcd]}"
	playbook := func(name, hosts string) {
		p.write("ansible/"+name, `- hosts: ctl1
  gather_facts: false
  tasks:
    - ansible.builtin.add_host: "{{ item }}"
      loop:
        `+hosts+`
- hosts: slurm_controller:n1
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: "{{ item }}", tasks_from: address}
      loop: [agent, client]
      when: inventory_hostname == 'n1'
    - ansible.builtin.include_role: {name: broker, tasks_from: "{{ item }}"}
      loop: [validate, config, key]
      when: inventory_hostname != 'n1'
`, 0o644)
	}
	playbook("several.yml", members)
	playbook("alone.yml", "- {name: ctl2, groups: [slurm_controller]}")
	args := []string{"-e", "broker_slurm_user=" + me.Username, "-e", "broker_user=" + me.Username, "-e", "broker_key_file=" + p.dir + "/store.key"}

	p.fails("brokers on ctl1, ctl2 need an etcd", "alone.yml", args...)
	out := p.run("several.yml", args...)
	for _, want := range []string{`"agent 10.1.0.1:7440,[fd00::2]:7440"`, `"client 10.1.0.1:7440,[fd00::2]:7440"`} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s\n%s", want, out)
		}
	}
	if got := p.read("store.key"); got != "/usr/sbin/kernel-broker store key" {
		t.Errorf("the key is made by %q", got)
	}
	for file, wants := range map[string][]string{
		"ctl1.json": {`"unix:///run/kernel-broker/broker.sock,[fd00::2]:7440"`},
		"ctl2.json": {`"unix:///run/kernel-broker/broker.sock,10.1.0.1:7440"`},
	} {
		got := strings.Join(strings.Fields(p.read(file)), " ")
		for _, want := range append(wants,
			`"endpoints": [ "https://[fd00::2]:2379", "https://[fd00::2]:2379", "https://10.1.0.1:2379" ]`,
			`"controllers": [ "10.1.0.1", "fd00::2" ]`, `"from": [ "local", "10.1.0.1", "fd00::2" ]`) {
			if !strings.Contains(got, want) {
				t.Errorf("%s has no %s\n%s", file, want, got)
			}
		}
	}
}
