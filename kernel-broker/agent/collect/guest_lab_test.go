// SPDX-License-Identifier: Apache-2.0

//go:build lab

package collect_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/vm"
)

// inGuest is set in the guest, where this same program is the one that runs.
const inGuest = "KERNEL_BROKER_TEST_GUEST"

const root = "../../.."

// onKernel boots a kernel with this test program and runs one of its tests there. KB_GUEST_KERNEL is the image of another
// kernel to boot instead, such as the newest of a distribution; KB_GUEST_RUN is which of a test's parts run.
func onKernel(t *testing.T, kernel, test string, change func(*vm.Guest)) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	known := filepath.Join(dir, "known")
	said, err := exec.Command("gcc", "-O2", "-static", "-o", known, "testdata/known.c").CombinedOutput()
	if err != nil {
		t.Fatalf("gcc: %v: %s", err, said)
	}
	initrd := filepath.Join(dir, "initrd")
	err = vm.BuildInitrd(t.Context(), vm.Root{
		Files: []vm.File{
			{Path: "/bin/self", Source: self, Mode: 0o755},
			{Path: "/bin/known", Source: known, Mode: 0o755},
			{Path: "/bin/strace", Source: "/usr/bin/strace", Mode: 0o755},
			{Path: "/bin/mitgcm-io", Source: filepath.Join(root, "build/workloads/mitgcm-io"), Mode: 0o755},
		},
		Script: `
mkdir -p /sys/fs/cgroup
mount -t cgroup2 cgroup /sys/fs/cgroup
echo +cpu >/sys/fs/cgroup/cgroup.subtree_control
: >/out/log
` + inGuest + `=1 self -test.v -test.count=1 -test.timeout=35m -test.run '^` + test + `$/` + os.Getenv("KB_GUEST_RUN") + `' >/out/log 2>&1 &
me=$!
tail -f /out/log &
wait $me
code=$?
dmesg | grep -iE 'bpf|warn|bug' >/out/dmesg
exit $code
`,
	}, initrd)
	if err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(root, "build/kernels", kernel, "bzImage")
	if other := os.Getenv("KB_GUEST_KERNEL"); other != "" {
		image = other
	}
	machine := vm.Guest{
		Kernel: image, Initrd: initrd,
		CPUs: 2, MemoryMiB: 2048, Limit: 40 * time.Minute,
		// On a loaded host a kernel can miss its first timer ticks, take the timer for broken and panic.
		Arguments: []string{"no_timer_check"},
	}
	if change != nil {
		change(&machine)
	}
	result, err := vm.Run(t.Context(), machine, filepath.Join(dir, "run"))
	if err != nil {
		t.Fatalf("%v: make kernels build-c", err)
	}
	log, err := os.ReadFile(filepath.Join(result.Files, "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("guest with kernel %s, %v:\n%s", kernel, result.Wall.Round(time.Second), log)
	passed := "--- PASS: " + test
	if os.Getenv("KB_GUEST_RUN") != "" {
		passed += "/" // else none of that name
	}
	if result.ExitCode != 0 || !strings.Contains(string(log), passed) {
		t.Errorf("the guest's tests ended with %d", result.ExitCode)
	}
	if dmesg, err := os.ReadFile(filepath.Join(result.Files, "dmesg")); err != nil || strings.Contains(string(dmesg), "WARNING") || strings.Contains(string(dmesg), "BUG:") {
		t.Errorf("the kernel complained (%v):\n%s", err, dmesg)
	}
}

// guest runs the test in a guest if called on the host, and reports whether it is in a guest.
func guest(t *testing.T, kernel string, change func(*vm.Guest)) bool {
	t.Helper()
	if os.Getenv(inGuest) != "" {
		return true
	}
	onKernel(t, kernel, t.Name(), change)
	return false
}
