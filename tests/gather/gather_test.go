// SPDX-License-Identifier: Apache-2.0

//go:build lab

package gather

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/vm"
)

const (
	top = "../.."
	// Generous: the machine may be shared, and emulated in turn.
	limit = 40 * time.Minute
	// Of each file system and option; KB_GATHER_SEED begins elsewhere.
	seeds, steps = 6, 3000
)

// kernel is the small one with the patch and the checks of locks and memory, or
// the one that KB_GATHER_KERNEL names, such as mitgcm-gather.
func kernel(t *testing.T) string {
	t.Helper()
	path := os.Getenv("KB_GATHER_KERNEL")
	if path == "" {
		path = top + "/build/kernels/suite-gather/bzImage"
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: make kernels KERNELS=suite-gather", err)
	}
	return path
}

// helpers of each script: file systems by name, both options of each.
const helpers = `set -e
# made FILE MIB: ext4 in a file in memory.
made() {
	truncate -s "$2M" "/dev/shm/$1"
	/usr/sbin/mke2fs -q -t ext4 "/dev/shm/$1"
}
# not COMMAND: the shell goes on after a failed "! command".
not() {
	if "$@"; then return 1; fi
}
# has FILE: the kernel has what the check needs.
has() {
	[ -e "$1" ] || { touch /out/without; exit 0; }
}
# interval CENTISECS: how often the kernel writes what is dirty, and what waits.
interval() {
	echo "$1" >/proc/sys/vm/dirty_writeback_centisecs
	echo "$1" >/proc/sys/vm/dirty_expire_centisecs
}
mkdir -p /a
`

// run runs the script in a guest; what it prints below /out comes back.
func run(t *testing.T, script string, change func(*vm.Guest)) vm.Result {
	t.Helper()
	dir := t.TempDir()
	initrd := filepath.Join(dir, "initrd")
	program, err := filepath.Abs(top + "/build/workloads/gather-check")
	if err != nil {
		t.Fatal(err)
	}
	root := vm.Root{Script: helpers + script, Files: []vm.File{
		{Path: "/bin/gather-check", Source: program},
		{Path: "/sbin/mke2fs", Source: "/sbin/mke2fs"},
	}}
	if err := vm.BuildInitrd(t.Context(), root, initrd); err != nil {
		t.Fatalf("%v: make build", err)
	}
	guest := vm.Guest{Kernel: kernel(t), Initrd: initrd, Limit: limit, CPUs: 2, MemoryMiB: 1024}
	if change != nil {
		change(&guest)
	}
	result, err := vm.Run(t.Context(), guest, filepath.Join(dir, "run"))
	if err != nil {
		t.Fatal(err)
	}
	console, err := os.ReadFile(result.Console)
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{"WARNING:", "BUG:", "INFO: task", "Call Trace", "EXT4-fs error", "EXT4-fs warning"} {
		if strings.Contains(string(console), words) {
			t.Errorf("the kernel complains (%s)", words)
		}
	}
	if result.ExitCode != 0 || t.Failed() {
		t.Fatalf("exit code %d:\n%s", result.ExitCode, console)
	}
	if _, err := os.Stat(filepath.Join(result.Files, "without")); err == nil {
		t.Skip("the kernel has not what this needs: suite-gather has")
	}
	return result
}

func out(t *testing.T, result vm.Result, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(result.Files, name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

// firstSeed is 1, so that a run repeats.
func firstSeed(t *testing.T) int {
	t.Helper()
	text := os.Getenv("KB_GATHER_SEED")
	if text == "" {
		return 1
	}
	seed, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("KB_GATHER_SEED: %v", err)
	}
	return seed
}

// What any process can see is what POSIX says, with the option and without. ext4
// has blocks of 4096 and of 1024 bytes, delayed and immediate allocation, and data
// in the journal. Data in the inode (inline_data) is left out: with the option off, too, ext4
// lost bytes there (seed 1, step 310); a kernel without the patch was not tried.
func TestOperations(t *testing.T) {
	mounts := []struct{ name, make, mount string }{
		{"tmpfs", "", "-t tmpfs -o %s none"},
		{"ext4", "made disk 64", "-t ext4 -o loop,%s /dev/shm/disk"},
		{"ext4-1k", "made disk 64 && /usr/sbin/mke2fs -q -F -t ext4 -b 1024 /dev/shm/disk", "-t ext4 -o loop,%s /dev/shm/disk"},
		{"ext4-nodelalloc", "made disk 64", "-t ext4 -o loop,nodelalloc,%s /dev/shm/disk"},
		{"ext4-journal", "made disk 64", "-t ext4 -o loop,data=journal,%s /dev/shm/disk"},
	}
	for _, mount := range mounts {
		t.Run(mount.name, func(t *testing.T) {
			script := mount.make + "\n"
			for _, option := range []string{"gather", "nogather"} {
				is := map[string]string{"gather": "grep -q", "nogather": "not grep -q"}[option]
				script += fmt.Sprintf("mount "+mount.mount+" /a\n", option) +
					"grep ' /a ' /proc/mounts >/out/mounts\n" +
					is + " '[ ,]gather' /out/mounts\n" +
					fmt.Sprintf("for seed in $(seq %d %d); do gather-check random --dir /a --seed $seed --steps %d; done\n",
						firstSeed(t), firstSeed(t)+seeds-1, steps) +
					"for check in writers killed limit; do gather-check $check --dir /a; done\n" +
					"umount /a\n"
			}
			run(t, script, nil)
		})
	}
}

// The option can come and go while files are open.
func TestRemount(t *testing.T) {
	run(t, `made disk 64
mount -t ext4 -o loop /dev/shm/disk /a
(for seed in 1 2 3 4; do gather-check random --dir /a --seed $seed --steps 3000 || touch /out/failed; done; touch /out/done) &
until [ -e /out/done ]; do
	mount -o remount,gather /a
	mount -o remount,nogather /a
	sync
done
[ ! -e /out/failed ]
umount /a
! mount -t proc -o gather none /a`, nil)
}

// A file system that gets full refuses the write that has no room: what other
// writes took is in the file, and neither fsync nor close fails.
func TestFull(t *testing.T) {
	run(t, `for option in gather nogather; do
	mount -t tmpfs -o size=200k,$option none /a
	gather-check full --dir /a
	umount /a
	for blocks in 1024 4096; do
		rm -f /dev/shm/disk; truncate -s 1M /dev/shm/disk
		/usr/sbin/mke2fs -q -t ext4 -b $blocks -O ^has_journal /dev/shm/disk
		mount -t ext4 -o loop,$option /dev/shm/disk /a
		gather-check full --dir /a
		umount /a
	done
done`, nil)
}

// A copy of the disk while all is mounted is what a power cut leaves. What was
// synced is there, by fsync or by sync; of what came later, a beginning. No timer
// does in the meantime what sync is to do.
func TestPowerCut(t *testing.T) {
	result := run(t, `made disk 64
interval 360000
mkdir /b
for option in gather nogather; do
	mount -t ext4 -o loop,$option /dev/shm/disk /a
	gather-check records --hold --dir /a >/out/held & child=$!
	until grep -q written /out/held; do sleep 0.1; done
	cp /dev/shm/disk /dev/shm/cut
	mount -t ext4 -o loop /dev/shm/cut /b
	gather-check verify --dir /b >/out/$option-fsync
	umount /b
	sync
	cp /dev/shm/disk /dev/shm/cut
	mount -t ext4 -o loop /dev/shm/cut /b
	gather-check verify --dir /b >/out/$option-sync
	umount /b
	kill -9 $child; wait $child || true
	gather-check verify --dir /a >/out/$option-killed
	rm -f /a/records /out/held
	umount /a
done`, nil)
	for _, option := range []string{"gather", "nogather"} {
		if got := out(t, result, option+"-sync"); got != "62700" {
			t.Errorf("%s: %s bytes after sync, want all 62700", option, got)
		}
		if got := out(t, result, option+"-killed"); got != "62700" {
			t.Errorf("%s: %s bytes of a killed process, want all 62700", option, got)
		}
		t.Logf("%s: %s bytes after a cut, 55000 were synced", option, out(t, result, option+"-fsync"))
	}
}

// What nobody syncs is on the disk after a while, though the end of another mount,
// without the option, hangs all the while on a disk that is frozen.
func TestTimer(t *testing.T) {
	result := run(t, `mkdir /b /outer /inner
made outer 64
mount -t ext4 -o loop,nogather /dev/shm/outer /outer
truncate -s 32M /outer/inner
/usr/sbin/mke2fs -q -t ext4 /outer/inner
mount -t ext4 -o loop,nogather /outer/inner /inner
made disk 64
mount -t ext4 -o loop,gather /dev/shm/disk /a
cp /bin/gather-check /inner
fsfreeze --freeze /outer
umount /inner & hanging=$!
sleep 2
interval 100
gather-check records --hold --dir /a >/out/held & child=$!
until grep -q written /out/held; do sleep 0.1; done
for try in $(seq 30); do
	sleep 1
	cp /dev/shm/disk /dev/shm/cut
	mount -t ext4 -o loop /dev/shm/cut /b
	gather-check verify --dir /b >/out/size
	umount /b
	[ "$(cat /out/size)" != 62700 ] || break
done
kill -0 $hanging && echo hung >/out/umount
fsfreeze --unfreeze /outer
wait $hanging
kill -9 $child; wait $child || true
umount /a /outer`, nil)
	if got := out(t, result, "size"); got != "62700" {
		t.Errorf("%s bytes on the disk, want all 62700", got)
	}
	if got := out(t, result, "umount"); got != "hung" {
		t.Errorf("the other mount did not hang: %q", got)
	}
}

// A write whose source is slow to fault in holds up neither sync nor a reader.
func TestSlowFault(t *testing.T) {
	run(t, `made disk 64
has /proc/sys/vm/unprivileged_userfaultfd
for option in gather nogather; do
	mount -t tmpfs -o $option none /a
	gather-check fault --dir /a
	umount /a
	mount -t ext4 -o loop,$option /dev/shm/disk /a
	gather-check fault --dir /a
	umount /a
done`, nil)
}

// Bytes that cannot be written are an error of each close until an fsync or a write says it, also after a child's end has
// closed the file. Without the option they are in the page cache, and nothing is said.
func TestErrors(t *testing.T) {
	result := run(t, `made disk 64
for option in gather nogather; do
	mount -t ext4 -o loop,$option /dev/shm/disk /a
	gather-check shutdown --dir /a >/out/$option
	umount /a
done`, nil)
	for option, want := range map[string]string{
		"gather":   "close: Input/output error\nagain: Input/output error",
		"nogather": "close: ok\nagain: ok",
	} {
		if got := out(t, result, option); got != want {
			t.Errorf("%s: %q, want %q", option, got, want)
		}
	}
}

// Blocks that go or come before bytes that wait, also where ext4 writes data to its journal.
func TestRanges(t *testing.T) {
	run(t, `made disk 64
for journal in ordered journal; do
for option in gather nogather; do
	mount -t ext4 -o loop,data=$journal,$option /dev/shm/disk /a
	gather-check ranges --dir /a
	umount /a
done
done`, nil)
}

// Many direct writes at a time that end in an fsync each, beside short ones: none waits for the other for ever.
func TestDirect(t *testing.T) {
	run(t, `made disk 64
for option in gather nogather; do
	mount -t ext4 -o loop,$option /dev/shm/disk /a
	gather-check direct --dir /a
	umount /a
done`, nil)
}

// The same as TestErrors over an overlay, whose files have others below them.
func TestErrorsOfOverlay(t *testing.T) {
	result := run(t, `made disk 64
grep -q overlay /proc/filesystems || has /overlay
mkdir /lower /over
mount -t ext4 -o loop,gather /dev/shm/disk /a
mkdir /a/upper /a/work
mount -t overlay -o lowerdir=/lower,upperdir=/a/upper,workdir=/a/work none /over
gather-check shutdown --dir /over --disk /a >/out/said
umount /over /a`, nil)
	if got, want := out(t, result, "said"), "close: Input/output error\nagain: Input/output error"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// On tmpfs, whose fsync does nothing, the next fsync says it, once.
func TestErrorsOfTmpfs(t *testing.T) {
	result := run(t, `has /sys/kernel/debug/hwpoison
mount -t tmpfs -o gather none /a
gather-check poison --dir /a >/out/said
umount /a`, nil)
	if got, want := out(t, result, "said"), "fsync: Input/output error\nagain: ok\nclose: ok"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// With the option a write of 8 bytes takes at least a fifth fewer instructions, of
// program and kernel, also where lock checking makes every lock dear: the clock of
// an exact guest counts them.
func TestItGathers(t *testing.T) {
	result := run(t, `made disk 64
for option in gather nogather; do
	mount -t tmpfs -o $option none /a
	gather-check clock --dir /a >/out/tmpfs-$option
	umount /a
	mount -t ext4 -o loop,$option /dev/shm/disk /a
	gather-check clock --dir /a >/out/ext4-$option
	umount /a
done`, func(g *vm.Guest) { g.Exact, g.CPUs = true, 1 })
	for _, name := range []string{"tmpfs", "ext4"} {
		var counts [2]float64
		for i, option := range []string{"gather", "nogather"} {
			count, err := strconv.ParseFloat(out(t, result, name+"-"+option), 64)
			if err != nil {
				t.Fatal(err)
			}
			counts[i] = count
		}
		t.Logf("%s: %.0f instructions a write, %.0f without", name, counts[0]/40000, counts[1]/40000)
		if counts[0] > counts[1]*0.8 {
			t.Errorf("%s: 40,000 writes take %.0f instructions with the option, %.0f without", name, counts[0], counts[1])
		}
	}
}
