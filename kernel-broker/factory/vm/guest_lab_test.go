// SPDX-License-Identifier: Apache-2.0

//go:build lab

package vm

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Generous: the machine may be shared, and emulated in turn.
const limit = 10 * time.Minute

func kernels(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, name := range []string{"mitgcm", "suite-stock", "stock"} {
		path, err := filepath.Abs("../../../build/kernels/" + name + "/bzImage")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("%v: make kernels", err)
		}
		found[name] = path
	}
	return found
}

func boot(t *testing.T, kernel string, root Root, change func(*Guest)) (Result, error) {
	t.Helper()
	dir := t.TempDir()
	initrd := filepath.Join(dir, "initrd")
	if err := BuildInitrd(t.Context(), root, initrd); err != nil {
		t.Fatal(err)
	}
	g := Guest{Kernel: kernel, Initrd: initrd, Limit: limit}
	if change != nil {
		change(&g)
	}
	return Run(t.Context(), g, filepath.Join(dir, "run"))
}

func TestGuestRunsAScript(t *testing.T) {
	for name, kernel := range kernels(t) {
		t.Run(name, func(t *testing.T) {
			var console bytes.Buffer
			result, err := boot(t, kernel, Root{
				Files: []File{
					{Path: "/etc/greeting", Content: []byte("hello\n")},
					{Path: "/bin/jq", Source: "/usr/bin/jq"},
				},
				Script: `
mkdir -p /out/deep/er
cat /etc/greeting >/out/deep/er/greeting
uname -r >/out/release
head -c 3000000 /dev/urandom >/out/large
md5sum </out/large >/out/sum
echo '{"a":[1,42]}' | jq .a[1] >/out/jq
grep -c ^processor /proc/cpuinfo >/out/cpus
exit 7
`,
			}, func(g *Guest) { g.Console, g.CPUs = &console, 2 })
			if err != nil {
				t.Fatal(err)
			}
			if result.ExitCode != 7 {
				t.Errorf("result is %+v", result)
			}
			text := func(name string) string {
				data, err := os.ReadFile(filepath.Join(result.Files, name))
				if err != nil {
					t.Fatal(err)
				}
				return strings.TrimSpace(string(data))
			}
			if text("deep/er/greeting") != "hello" || text("jq") != "42" || text("cpus") != "2" {
				t.Errorf("greeting %q, jq %q, cpus %q", text("deep/er/greeting"), text("jq"), text("cpus"))
			}
			if !strings.HasPrefix(text("release"), "6.1.") {
				t.Errorf("release is %q", text("release"))
			}
			if got := digest(t, filepath.Join(result.Files, "large")); !strings.HasPrefix(text("sum"), got) {
				t.Errorf("3 MB came out as %s, were %s", got, text("sum"))
			}
			if !strings.Contains(console.String(), "the script ended with 7") {
				t.Errorf("console is %q", console.String())
			}
			t.Logf("%s %s: %v", name, text("release"), result.Wall)
		})
	}
}

func TestGuestThatPanics(t *testing.T) {
	result, err := boot(t, kernels(t)["mitgcm"], Root{Script: "echo c >/proc/sysrq-trigger; kill -9 1; sleep 60"},
		func(g *Guest) { g.Arguments = []string{"rdinit=/nowhere", "init=/nowhere", "root=/dev/nothing"} })
	var failure *BootError
	if !errors.As(err, &failure) || failure.Reason != ReasonPanic {
		t.Fatalf("result %+v, error %v", result, err)
	}
	if !strings.Contains(failure.Said, "Kernel panic") || failure.Tail == "" {
		t.Errorf("said %q, tail %q", failure.Said, failure.Tail)
	}
}

func TestGuestThatHangs(t *testing.T) {
	_, err := boot(t, kernels(t)["mitgcm"], Root{Script: "echo before; sleep 100000"},
		func(g *Guest) { g.Limit = 15 * time.Second })
	var failure *BootError
	if !errors.As(err, &failure) || failure.Reason != ReasonHang {
		t.Fatalf("error is %v", err)
	}
}

func TestGuestThatResets(t *testing.T) {
	_, err := boot(t, kernels(t)["mitgcm"], Root{Script: "echo before; reboot -f; sleep 1000"}, nil)
	var failure *BootError
	if !errors.As(err, &failure) || failure.Reason != ReasonReset {
		t.Fatalf("error is %v", err)
	}
}

func TestGuestIsStoppedByItsCaller(t *testing.T) {
	dir := t.TempDir()
	initrd := filepath.Join(dir, "initrd")
	if err := BuildInitrd(t.Context(), Root{Script: "sleep 100000"}, initrd); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err := Run(ctx, Guest{Kernel: kernels(t)["mitgcm"], Initrd: initrd, Limit: limit}, dir)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("error is %v", err)
	}
}

func TestGuestWithADisk(t *testing.T) {
	result, err := boot(t, kernels(t)["mitgcm"], Root{
		Files: []File{{Path: "/sbin/mkfs.ext4", Source: "/sbin/mke2fs"}},
		Script: `set -e
mkfs.ext4 -q /dev/vda
mount -t ext4 /dev/vda /mnt
echo kept >/mnt/file
cp /mnt/file /out/file`,
	}, func(g *Guest) { g.Disk = 64 << 20 })
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(result.Files, "file"))
	if result.ExitCode != 0 || err != nil || string(data) != "kept\n" {
		t.Errorf("exit code %d, file %q, %v", result.ExitCode, data, err)
	}
}

// An exact guest sees the same time at the same place of every run.
func TestExactGuestRepeats(t *testing.T) {
	var seen []string
	for range 2 {
		result, err := boot(t, kernels(t)["mitgcm"], Root{
			Script: "head -c 16 /dev/urandom | od >/out/random; date +%s.%N >/out/date; cat /proc/uptime /proc/interrupts /proc/self/maps >/out/all",
		}, func(g *Guest) { g.Exact = true })
		if err != nil {
			t.Fatal(err)
		}
		var text []byte
		for _, name := range []string{"random", "date", "all"} {
			data, err := os.ReadFile(filepath.Join(result.Files, name))
			if err != nil {
				t.Fatal(err)
			}
			text = append(text, data...)
		}
		seen = append(seen, string(text))
		t.Log(result.Wall)
	}
	if seen[0] != seen[1] {
		t.Errorf("two exact runs differ:\n%s\n%s", seen[0], seen[1])
	}
}
