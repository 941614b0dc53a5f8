// SPDX-License-Identifier: Apache-2.0

package build

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestBuildAfterSIGKILL kills a factory that has no chance to clean up, while
// its make works on. The next build must wait for that make, and then not
// trust what it left.
func TestBuildAfterSIGKILL(t *testing.T) {
	f := newFakeFactory(t)
	f.set("slow", true)
	victim := exec.Command(os.Args[0], "-test.run=^TestVictim$")
	victim.Env = append(os.Environ(), "FACTORY_VICTIM="+f.dir)
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	slow := filepath.Join(f.switches, "slow")
	for end := time.Now().Add(2 * time.Minute); exists(slow); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the build did not begin")
		}
	}
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = victim.Wait() // it was killed
	if exists(filepath.Join(f.switches, "slow-done")) {
		t.Fatal("make ended before its factory was killed: nothing was tried")
	}
	goOn := time.AfterFunc(2*time.Second, func() { f.set("go-on", true) })
	defer goOn.Stop()
	out := filepath.Join(f.dir, "out")
	manifest, err := f.build(t.Context(), out)
	if err != nil {
		t.Fatal(err)
	}
	if !exists(filepath.Join(f.switches, "slow-done")) {
		t.Error("the build did not wait for the make that was left over")
	}
	if err := manifest.Verify(out); err != nil {
		t.Error(err)
	}
}

// TestVictim is the process that TestBuildAfterSIGKILL kills.
func TestVictim(t *testing.T) {
	dir := os.Getenv("FACTORY_VICTIM")
	if dir == "" {
		t.Skip("only runs inside of TestBuildAfterSIGKILL")
	}
	f := &fakeFactory{t: t, dir: dir, source: SourcePackage{
		Name: "linux-source-9.9", Version: "9.9-1", Tarball: filepath.Join(dir, "linux-source-9.9.tar.xz"),
	}}
	if _, err := f.build(t.Context(), filepath.Join(dir, "out-victim")); err != nil {
		t.Error(err)
	}
}
