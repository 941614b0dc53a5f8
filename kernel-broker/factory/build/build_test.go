// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
)

func TestBuild(t *testing.T) {
	f := newFakeFactory(t)
	out := filepath.Join(f.dir, "out")
	if _, err := f.build(t.Context(), out); err != nil {
		t.Fatal(err)
	}
	manifest, err := ReadManifest(out)
	if err != nil {
		t.Fatal(err)
	}
	if err := manifest.Verify(out); err != nil {
		t.Error(err)
	}
	if manifest.Name != "fake" || manifest.Release != fakeRelease || manifest.BuildID != fakeBuildID ||
		manifest.Limits.CommandLineBytes != 2047 || manifest.Source.Version != "9.9-1" ||
		len(manifest.Fragments) != 1 || manifest.Compiler.Name != "gcc-12" {
		t.Errorf("manifest is %+v", manifest)
	}
	if want := []string{"virtio_blk"}; !slices.Equal(manifest.Drivers.BuiltIn, want) {
		t.Errorf("drivers %v, want %v", manifest.Drivers.BuiltIn, want)
	}
	if want := []string{"ext4"}; !slices.Equal(manifest.Filesystems.BuiltIn, want) {
		t.Errorf("file systems %v, want %v", manifest.Filesystems.BuiltIn, want)
	}
	config, err := kconfig.ReadConfig(filepath.Join(out, ConfigFile))
	if err != nil {
		t.Fatal(err)
	}
	if config["TINY"] != "y" || config["WANTED"] != "y" || config["LOCALVERSION"] != `"-fake"` {
		t.Errorf("configuration is %v", config)
	}
	if entries, err := os.ReadDir(out); err != nil || len(entries) != 4 {
		t.Errorf("the result holds more than its four files: %v, %v", entries, err)
	}
}

func TestBuildFailureSaysWhy(t *testing.T) {
	f := newFakeFactory(t)
	f.set("fail", true)
	out := filepath.Join(f.dir, "out")
	_, err := f.build(t.Context(), out)
	var failure *BuildError
	if !errors.As(err, &failure) {
		t.Fatalf("error is %v", err)
	}
	if !strings.Contains(err.Error(), "two.c:7: error: no such thing") || !strings.Contains(failure.Tail, "  CC      one.o\n") {
		t.Errorf("error is %v", err)
	}
	if exists(filepath.Join(out, ManifestFile)) {
		t.Error("a failed build left a manifest")
	}
	f.set("fail", false)
	objects, err := filepath.Glob(filepath.Join(f.dir, "cache/objects/*.in-use"))
	if err != nil || len(objects) != 0 {
		t.Errorf("a build that ended left its folder in use: %v, %v", objects, err)
	}
	if _, err := f.build(t.Context(), out); err != nil {
		t.Errorf("after the mistake was mended: %v", err)
	}
}

func TestBuildKilledLeavesNoResult(t *testing.T) {
	f := newFakeFactory(t)
	f.set("hang", true)
	ctx, cancel := context.WithCancel(t.Context())
	var stopped time.Time
	var stopping sync.WaitGroup
	stopping.Go(func() {
		for !exists(filepath.Join(f.switches, "hangs")) && t.Context().Err() == nil {
			time.Sleep(20 * time.Millisecond)
		}
		stopped = time.Now()
		cancel()
	})
	out := filepath.Join(f.dir, "out")
	_, err := f.build(ctx, out)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("error is %v", err)
	}
	stopping.Wait()
	if took := time.Since(stopped); took > 2*time.Minute {
		t.Errorf("stopping took %v", took)
	}
	if exists(filepath.Join(out, ManifestFile)) {
		t.Error("a killed build left a manifest")
	}
	f.set("hang", false)
	plan, err := f.builder().Plan(t.Context(), "fake")
	if err != nil {
		t.Fatal(err)
	}
	// What a run leaves that could not clean up after itself.
	objects := filepath.Join(f.dir, "cache/compiled", plan.objectsKey(), "objects")
	if !exists(objects + ".in-use") {
		t.Error("nothing says that the object folder was in use")
	}
	write(t, filepath.Join(objects, "half.o"), "half")
	if _, err := f.build(t.Context(), out); err != nil {
		t.Errorf("after a killed run: %v", err)
	}
	if exists(filepath.Join(objects, "half.o")) || exists(objects+".in-use") {
		t.Error("half an object is left, or the folder still counts as in use")
	}
}

func TestBuildStopsWhenAnOptionIsLost(t *testing.T) {
	f := newFakeFactory(t)
	f.recipe("base", "more")
	f.fragment("more", "# Reason.\nCONFIG_DROPPED=y\n")
	_, err := f.build(t.Context(), filepath.Join(f.dir, "out"))
	var lost *kconfig.LostError
	if !errors.As(err, &lost) || len(lost.Lost) != 1 {
		t.Fatalf("error is %v", err)
	}
	for _, want := range []string{"more.config:2: CONFIG_DROPPED=y: absent", "unmet: depends on NOWHERE (init/Kconfig:3)"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in:\n%v", want, err)
		}
	}
	if f.builds() != 0 {
		t.Error("and yet it was built")
	}
}

func TestBuildRefusesAnotherKernelsImage(t *testing.T) {
	f := newFakeFactory(t)
	f.makeTarball(fakeImage(t, fakeRelease, strings.Repeat("ab", 20)))
	_, err := f.build(t.Context(), filepath.Join(f.dir, "out"))
	if err == nil || !strings.Contains(err.Error(), "image has build id abab") {
		t.Errorf("error is %v", err)
	}
}

// The folder of objects is a child of one that shows the source. A tree that moved
// is followed.
func TestShowTree(t *testing.T) {
	tree, moved, dir := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "key")
	for _, at := range []string{tree, moved} {
		write(t, filepath.Join(at, "fs/namei.c"), at)
		write(t, filepath.Join(at, ".clang-format"), "")
	}
	for _, at := range []string{tree, tree, moved} {
		if err := showTree(at, dir); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(filepath.Join(dir, "fs/namei.c")); err != nil || string(text) != at {
			t.Errorf("%q, %v, want %q", text, err, at)
		}
		write(t, filepath.Join(dir, "objects", ".config"), "of this one")
	}
	if !exists(filepath.Join(dir, "objects/.config")) || !exists(filepath.Join(dir, ".clang-format")) {
		t.Error("the objects or a hidden file are not there")
	}
}
