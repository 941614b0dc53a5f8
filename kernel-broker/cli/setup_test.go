// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// setup slurm prints what Slurm's files lack, a list with what the site has in it, and changes nothing. With its lines there
// is nothing left to print.
func TestSetupSlurm(t *testing.T) {
	f := newFixture(t)
	dir := t.TempDir()
	files := map[string]string{
		"slurm.conf":     "ClusterName=x # RebootProgram=/none\nSlurmctldParameters=idle_on_node_suspend\nPrologFlags=Alloc\nNodeName=n1 CPUs=2 Epilog=/none\nInclude more.conf\n",
		"more.conf":      "SchedulerParameters=bf_continue \\\n JobRequeue=0\n",
		"cgroup.conf":    "CgroupPlugin=cgroup/v1\n",
		"plugstack.conf": "optional other.so\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	conf := filepath.Join(dir, "slurm.conf")
	code, out, _ := f.run("setup", "slurm", "--slurm-conf", conf)
	want := "# " + conf + `
RebootProgram=/usr/libexec/kernel-broker/reboot
# in place of SlurmctldParameters=idle_on_node_suspend:
SlurmctldParameters=idle_on_node_suspend,reboot_from_controller
PrologSlurmctld=/usr/libexec/kernel-broker/prolog-slurmctld
EpilogSlurmctld=/usr/libexec/kernel-broker/epilog-slurmctld
Epilog=/usr/libexec/kernel-broker/epilog
# in place of PrologFlags=Alloc:
PrologFlags=Alloc,DeferBatch
# in place of SchedulerParameters=bf_continue:
SchedulerParameters=bf_continue,nohold_on_prolog_fail
# in place of JobRequeue=0:
JobRequeue=1
JobSubmitPlugins=lua
# ` + dir + `/cgroup.conf
# in place of CgroupPlugin=cgroup/v1:
CgroupPlugin=autodetect
# ` + dir + `/plugstack.conf
required /usr/lib/kernel-broker/kernel_profile.so
# nothing was changed; after the restart kernelctl doctor checks the whole site
`
	if code != 1 || out != want {
		t.Errorf("exit %d, got\n%s\nwant\n%s", code, out, want)
	}
	for name, text := range files {
		if now, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(now) != text {
			t.Errorf("%s is now %q, %v", name, now, err)
		}
	}
	// As an administrator would: the lines that stand in another's place do so.
	for name, text := range map[string]string{"slurm.conf": out, "cgroup.conf": "", "plugstack.conf": "required /usr/lib/kernel-broker/kernel_profile.so\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, out, _ = f.run("setup", "slurm", "--slurm-conf", conf)
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "#") {
			t.Errorf("it still wants %q", line)
		}
	}
	f.must(1, "none: no such file", "setup", "slurm", "--slurm-conf", dir+"/none")
}
