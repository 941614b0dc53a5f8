// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package emulated

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/tests/support/slurmroot"
)

// rootlessUser is neither an account of the host nor of a cluster.
const rootlessUser = 30007

// rootlessScript runs this test program as a user without rights who has a range of /etc/subuid. The user and its range
// exist only in a mount namespace of the script's; of the environment only PATH stays. Arguments: repository, folder for
// the clusters, test program, user's id.
const rootlessScript = `set -eu
mount -t tmpfs -o mode=755 tmpfs /mnt
mkdir /mnt/repo /mnt/home
: >/mnt/test
mount --bind "$1" /mnt/repo
mount --bind "$2" /mnt/repo/build/emulated
mount --bind "$3" /mnt/test
for file in passwd subuid subgid; do cp /etc/$file /mnt/$file; done
echo "rootless:x:$4:$4::/mnt/home:/bin/sh" >>/mnt/passwd
echo "rootless:500000:65536" | tee -a /mnt/subuid >>/mnt/subgid
for file in passwd subuid subgid; do mount --bind /mnt/$file /etc/$file; done
chown "$4:$4" /mnt/home "$2"
cd /mnt/repo/tests/emulated
exec setpriv --reuid "$4" --regid "$4" --clear-groups --reset-env env PATH="$PATH" \
	/mnt/test -test.run '^TestMainJob$' -test.count 1 -test.v
`

// A user without rights starts a cluster where user namespaces are open to all: the main job runs there as it does for
// root.
func TestMainJobWithoutRoot(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("not root: TestMainJob shows it")
	}
	user := fmt.Sprint(rootlessUser)
	open := exec.Command("setpriv", "--reuid", user, "--regid", user, "--clear-groups", "unshare", "--user", "true")
	if out, err := open.CombinedOutput(); err != nil {
		t.Skipf("users cannot have user namespaces here: %v: %s", err, out)
	}
	o, err := Defaults()
	if err != nil {
		t.Fatal(err)
	}
	// A root with another version of Slurm is in root's cache.
	root, err := slurmroot.Find(t.Context(), o.Repo, slurmroot.Default)
	if err != nil {
		t.Fatal(err)
	}
	if !root.Own() {
		t.Skipf("the machine's own Slurm is not %s", slurmroot.Default)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(o.Repo, "build/emulated", o.Slurm, t.Name())
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	atOnce <- struct{}{}
	defer func() { <-atOnce }()
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", rootlessScript,
		"rootless", o.Repo, dir, program, user)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestMainJob (") {
		t.Fatalf("without root: %v\n%s\nlogs: %s", err, out, dir)
	}
	t.Logf("without root:\n%s", out)
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
}
