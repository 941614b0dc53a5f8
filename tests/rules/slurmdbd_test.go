// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"encoding/json"
	"fmt"
	"os/user"
	"strconv"
	"strings"
	"testing"
)

// munge and slurmdbd that are older than their files, since a run ended before its handlers, are restarted by the next run, once.
func TestRunAfterBrokenRun(t *testing.T) {
	p := newPlaybooks(t)
	p.noPackages()
	p.program("systemctl", systemctl)
	p.module("systemd", systemd)
	p.module("wait_for", `echo '{"changed": false}'`)
	p.own()
	p.edit("roles/munge", "/etc/munge", p.dir)
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	p.edit("roles/slurmdbd", `group: "{{ slurmdbd_user }}"`, fmt.Sprintf("group: %q", me.Gid))
	p.write("munge.key", "key", 0o600)
	p.write("ansible/broken.yml", "- {hosts: ctl1, gather_facts: false, roles: [munge, slurmdbd]}\n", 0o644)
	args := []string{"-e", "slurmdbd_conf_dir=" + p.dir, "-e", "slurmdbd_user=" + me.Username, "-e", "slurmdbd_storage_host=db"}
	p.run("broken.yml", args...)
	for _, daemon := range []string{"munge", "slurmdbd"} {
		p.write("state/"+daemon, "Thu 2020-01-02 03:04:05.678901 UTC\n", 0o644)
	}
	p.write("state/log", "", 0o644)
	p.run("broken.yml", args...)
	out := p.run("broken.yml", args...)
	if got := p.read("state/log"); got != "restart munge\nrestart slurmdbd" || !strings.Contains(out, "changed=0") {
		t.Errorf("daemons older than their files: %q\n%s", got, out)
	}
}

// The password of slurmdbd.conf is written as Slurm's parser reads it; one that no line of that file can have is refused.
func TestStoragePassword(t *testing.T) {
	p := newPlaybooks(t)
	p.write("ansible/roles/slurmdbd/tasks/show.yml", `- block:
    - ansible.builtin.import_tasks: validate.yml
    - {ansible.builtin.template: {src: slurmdbd.conf.j2, dest: "`+p.dir+`/{{ index }}", mode: "0600"}}
  rescue:
    - {ansible.builtin.copy: {content: StoragePass refused, dest: "`+p.dir+`/{{ index }}", mode: "0600"}}
`, 0o644)
	p.write("ansible/password.yml", `- hosts: n1
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: slurmdbd, tasks_from: show}
      vars: {slurmdbd_storage_password: "{{ item }}"}
      loop: "{{ passwords }}"
      loop_control: {index_var: index}
`, 0o644)
	rows := [][2]string{
		{"plain", "=plain"}, {"a#b", `=a\#b`}, {`a\b\`, `=a\\b\\`}, {`a\#b`, `=a\\\#b`}, {"two words#", `="two words\#"`}, {`a"b`, `=a"b`},
		{`"a"`, " refused"}, {`a "b`, " refused"}, {`a" b`, " refused"}, {"a\nb", " refused"},
	}
	var passwords []string
	for _, row := range rows {
		passwords = append(passwords, row[0])
	}
	text, err := json.Marshal(map[string]any{"passwords": passwords})
	if err != nil {
		t.Fatal(err)
	}
	p.run("password.yml", "-e", string(text))
	for i, row := range rows {
		if got := p.read(strconv.Itoa(i)) + "\n"; !strings.Contains(got, "StoragePass"+row[1]+"\n") {
			t.Errorf("%q is written as\n%swant StoragePass%s", row[0], got, row[1])
		}
	}
}
