// SPDX-License-Identifier: Apache-2.0

//go:build lab

package gather

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/vm"
	"github.com/kernelbroker/kernelbroker/tests/support/debianroot"
)

// userland is what xfstests' scripts and programs use.
var userland = debianroot.Root{Packages: []string{
	"bash", "perl", "gawk", "bc", "e2fsprogs", "xfsprogs", "attr", "acl", "quota", "procps", "psmisc", "dmsetup", "util-linux", "mount", "fdisk", "fio",
	"libcap2-bin", "file", "kmod", "libaio1", "liburing2", "libgdbm6", "uuid-runtime", "hostname", "thin-provisioning-tools", "lvm2",
	"bsdextrautils", "python3-minimal",
}}

// outside unpacks the userland, gives it two disks in memory that do not gather themselves, and lets it run.
const outside = `set -e
mkdir /debian
mount -t tmpfs -o nogather,size=90% none /debian
tar -xf /debian.tar -C /debian
mkdir -p /debian/out /debian/disks /debian/xfstests /debian/mnt/test /debian/mnt/scratch
tar -xf /xfstests.tar -C /debian/xfstests
truncate -s 3G /debian/disks/test
truncate -s 3G /debian/disks/scratch
cp /inside /tests /debian
for folder in proc sys dev out; do mount --rbind /$folder /debian/$folder; done
mount -t tmpfs -o nogather none /debian/tmp
exec chroot /debian /bin/bash /inside
`

// inside runs the tests of /tests for so many seconds; the shell's variables say on what.
const inside = `set -e
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C DM_DISABLE_UDEV=1
echo xfstests >/proc/sys/kernel/hostname
for user in fsgqa fsgqa2 123456-fsgqa; do
	useradd --badname --create-home --shell /bin/bash "$user"
done
losetup /dev/loop0 /disks/test
losetup /dev/loop1 /disks/scratch
cd /xfstests
{
	echo "export FSTYP=$type TEST_DIR=/mnt/test SCRATCH_MNT=/mnt/scratch"
	if [ "$type" = tmpfs ]; then
		echo "export TEST_DEV=test SCRATCH_DEV=scratch"
		echo "export TEST_FS_MOUNT_OPTS='-o $option,size=1G' MOUNT_OPTIONS='-o $option,size=1G'"
	else
		mke2fs -q -F -t "$type" /dev/loop0
		echo "export TEST_DEV=/dev/loop0 SCRATCH_DEV=/dev/loop1"
		echo "export TEST_FS_MOUNT_OPTS='-o acl,user_xattr,$option' MOUNT_OPTIONS='-o acl,user_xattr,$option'"
	fi
} >local.config
set +e
# A few tests at a time, so that what ran is known when the time is over.
while [ "$SECONDS" -lt "$seconds" ] && mapfile -t -n 8 next && [ "${#next[@]}" -gt 0 ]; do
	./check "${next[@]}"
done </tests 2>&1 | tee /dev/console >/out/said
cp results/check.log results/check.time /out
for bad in results/*/*.out.bad; do
	wanted=tests/${bad#results/}
	[ ! -e "$bad" ] || diff -u "${wanted%.bad}" "$bad" 2>&1 | head -40
done >/out/differences
tail -n 40 results/*/*.dmesg >/out/dmesg 2>/dev/null
exit 0
`

// touched are xfstests' groups of what the option changes: such tests go first.
var touched = []string{"rw", "aio", "mmap", "prealloc", "punch", "zero", "collapse", "insert", "enospc", "eio", "shutdown", "log", "seek", "freeze", "swap", "locks"}

// quick are the names of the tests of the group quick for a file system, those first that the option touches.
func quick(t *testing.T, built, fileSystem string) []string {
	t.Helper()
	var first, others []string
	for _, folder := range []string{"generic", fileSystem} {
		files, err := filepath.Glob(filepath.Join(built, "tests", folder, "[0-9][0-9][0-9]"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			begin := groups.FindSubmatch(text)
			if begin == nil {
				t.Fatalf("test %s names no groups", file)
			}
			of := strings.Fields(string(begin[1]))
			if !slices.Contains(of, "quick") {
				continue
			}
			to := &others
			if slices.ContainsFunc(of, func(group string) bool { return slices.Contains(touched, group) }) && !slices.Contains(of, "clone") {
				to = &first
			}
			*to = append(*to, folder+"/"+filepath.Base(file))
		}
	}
	return append(first, others...)
}

var groups = regexp.MustCompile(`(?m)^_begin_fstest (.*)$`)

// verdicts are the names of tests by how they ended.
type verdicts struct{ ran, without, failed []string }

// collect adds what check.log says; "Ran" has all tests, also those without what they need.
func (v *verdicts) collect(log string) {
	for line := range strings.Lines(log) {
		what, names, _ := strings.Cut(line, ":")
		switch what {
		case "Ran":
			v.ran = append(v.ran, strings.Fields(names)...)
		case "Not run":
			v.without = append(v.without, strings.Fields(names)...)
		case "Failures":
			v.failed = append(v.failed, strings.Fields(names)...)
		}
	}
}

// fixture is what all guests have.
type fixture struct {
	debian, xfstests, dir string
	limit                 time.Duration
}

// run runs the tests in as many guests as there are processors, on one file system, with the option or without.
func (f fixture) run(t *testing.T, fileSystem, option string, tests []string) verdicts {
	t.Helper()
	var all verdicts
	var lock sync.Mutex
	shards := min(runtime.NumCPU(), len(tests))
	t.Run(option, func(t *testing.T) {
		for shard := range shards {
			t.Run(strconv.Itoa(shard+1), func(t *testing.T) {
				t.Parallel()
				var own []string
				for i := shard; i < len(tests); i += shards {
					own = append(own, tests[i])
				}
				log := f.guest(t, fileSystem, option, shard, own)
				lock.Lock()
				defer lock.Unlock()
				all.collect(log)
			})
		}
	})
	t.Logf("%s, %s: %d tests of %d ran, %d of them have not what they need, %d failed: %s",
		fileSystem, option, len(all.ran), len(tests), len(all.without), len(all.failed), strings.Join(all.failed, " "))
	return all
}

// guest returns check.log of one guest.
func (f fixture) guest(t *testing.T, fileSystem, option string, shard int, tests []string) string {
	t.Helper()
	dir := filepath.Join(f.dir, fmt.Sprintf("%s-%s-%d", fileSystem, option, shard+1))
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	initrd := filepath.Join(dir, "initrd")
	variables := fmt.Appendf(nil, "type=%s option=%s seconds=%d\n", fileSystem, option, int(f.limit.Seconds()))
	root := vm.Root{Script: outside, Files: []vm.File{
		{Path: "/debian.tar", Source: f.debian},
		{Path: "/xfstests.tar", Source: f.xfstests},
		{Path: "/inside", Content: append(variables, inside...)},
		{Path: "/tests", Content: []byte(strings.Join(tests, "\n") + "\n")},
	}}
	if err := vm.BuildInitrd(t.Context(), root, initrd); err != nil {
		t.Fatal(err)
	}
	kernel := cmp.Or(os.Getenv("KB_GATHER_KERNEL"), top+"/build/kernels/suite-xfstests/bzImage")
	result, err := vm.Run(t.Context(), vm.Guest{Kernel: kernel, Initrd: initrd, Limit: 2*f.limit + time.Hour, CPUs: 2, MemoryMiB: 6144}, filepath.Join(dir, "run"))
	if err != nil {
		t.Fatalf("%v (make kernels KERNELS=suite-xfstests)", err)
	}
	log, err := os.ReadFile(filepath.Join(result.Files, "check.log"))
	if err != nil {
		t.Fatalf("%v: see %s", err, result.Console)
	}
	return string(log)
}

// With the option no test of xfstests' group quick fails that passes without. Debian has no package of xfstests:
// KB_XFSTESTS is a folder where somebody has built it. KB_XFSTESTS_MINUTES bounds the time in each guest,
// KB_XFSTESTS_TESTS names the tests.
func TestXfstests(t *testing.T) {
	built := os.Getenv("KB_XFSTESTS")
	if built == "" {
		t.Skip("needs xfstests: make test-xfstests XFSTESTS=DIR, a checkout")
	}
	minutes, err := strconv.Atoi(cmp.Or(os.Getenv("KB_XFSTESTS_MINUTES"), "600"))
	if err != nil {
		t.Fatalf("KB_XFSTESTS_MINUTES: %v", err)
	}
	dir, err := filepath.Abs(top + "/build/xfstests")
	if err != nil {
		t.Fatal(err)
	}
	f := fixture{debian: userland.Archive(t), xfstests: filepath.Join(t.TempDir(), "xfstests.tar"), dir: dir, limit: time.Duration(minutes) * time.Minute}
	if said, err := exec.CommandContext(t.Context(), "tar", "-cf", f.xfstests, "--exclude=.git", "-C", built, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	for _, fileSystem := range []string{"ext4", "tmpfs"} {
		t.Run(fileSystem, func(t *testing.T) {
			tests := strings.Fields(os.Getenv("KB_XFSTESTS_TESTS"))
			if len(tests) == 0 {
				tests = quick(t, built, fileSystem)
			}
			with := f.run(t, fileSystem, "gather", tests)
			if len(with.ran) == len(with.without) {
				t.Fatal("no test ran")
			}
			if len(with.failed) == 0 {
				return
			}
			without := f.run(t, fileSystem, "nogather", with.failed)
			for _, name := range with.failed {
				if !slices.Contains(without.failed, name) {
					t.Errorf("%s fails with the option only", name)
				}
			}
		})
	}
}
