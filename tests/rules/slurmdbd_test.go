// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"os/user"
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
