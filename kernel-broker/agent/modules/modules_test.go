// SPDX-License-Identifier: Apache-2.0

package modules

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	archives "github.com/kernelbroker/kernelbroker/kernel-broker/internal/modules"
)

const release = "6.1.0-test"

var digest = "sha256:" + strings.Repeat("ab", 32)

// cache has one archive, or fails in turn with errs first.
type cache struct {
	archive string
	errs    []error
	asked   int
}

func (c *cache) Keep(...string) {}

func (c *cache) Ensure(context.Context, string, uint64) error {
	c.asked++
	if len(c.errs) == 0 {
		return nil
	}
	err := c.errs[0]
	c.errs = c.errs[1:]
	return err
}

func (c *cache) Sealed(context.Context, string, uint64) (*os.File, error) { return os.Open(c.archive) }

// world is a loader for an archive with two modules, and what the kernel was given.
type world struct {
	Loader
	cache cache
	given []string
	err   error
}

func newWorld(t *testing.T) *world {
	t.Helper()
	from, dir := t.TempDir(), t.TempDir()
	for _, name := range []string{"updates/a.ko", "updates/b.ko"} {
		path := filepath.Join(from, "lib/modules", release, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(name), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	var packed bytes.Buffer
	if err := archives.Pack(&packed, archives.List{Release: release, Load: []string{"updates/b.ko", "updates/a.ko"}}, from); err != nil {
		t.Fatal(err)
	}
	w := &world{cache: cache{archive: filepath.Join(dir, "archive")}}
	if err := os.WriteFile(w.cache.archive, packed.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	w.Loader = Loader{
		Wanted: digest + ",1000", Boot: kb.Boot{BootID: "boot-1", Release: release, Token: "t"}, Dir: filepath.Join(dir, "run"),
		Tree: filepath.Join(dir, "lib/modules"), Archives: &w.cache, Log: slog.New(slog.DiscardHandler),
		Arguments: []string{"root=/dev/vda", "a.x=1", "ab.x=2", "a.y", "a"},
		Insert: func(file *os.File, parameters string) error {
			w.given = append(w.given, strings.TrimSpace(filepath.Base(file.Name())+" "+parameters))
			return w.err
		},
	}
	return w
}

func TestLoads(t *testing.T) {
	w := newWorld(t)
	w.Run(t.Context())
	if loaded, fault := w.State(); loaded != digest || fault != "" {
		t.Fatalf("%q, %q", loaded, fault)
	}
	if want := []string{"b.ko", "a.ko x=1 y"}; !slices.Equal(w.given, want) {
		t.Errorf("the kernel was given %v, want %v", w.given, want)
	}
	if text, err := os.ReadFile(filepath.Join(w.Tree, release, "updates/a.ko")); err != nil || string(text) != "updates/a.ko" {
		t.Errorf("modprobe finds %q, %v", text, err)
	}
	// An agent that starts later in the boot loads nothing again.
	again := w.Loader.again()
	again.Run(t.Context())
	if loaded, _ := again.State(); loaded != digest || len(w.given) != 2 {
		t.Errorf("later: %q, %d modules given", loaded, len(w.given))
	}
	// In the next boot of the same kernel it does, and a kernel's link from before goes.
	stale := filepath.Join(w.Tree, "6.1.0-before")
	if err := os.Symlink(filepath.Join(w.Dir, "lib/modules/6.1.0-before"), stale); err != nil {
		t.Fatal(err)
	}
	next := w.Loader.again()
	next.Boot.BootID = "boot-2"
	next.Run(t.Context())
	if loaded, _ := next.State(); loaded != digest || len(w.given) != 4 {
		t.Errorf("next boot: %q, %d modules given", loaded, len(w.given))
	}
	if _, err := os.Lstat(stale); err == nil {
		t.Error("a link that leads nowhere is left")
	}
}

// again is the same loader in another agent.
func (l *Loader) again() *Loader {
	return &Loader{Wanted: l.Wanted, Boot: l.Boot, Dir: l.Dir, Tree: l.Tree, Archives: l.Archives, Arguments: l.Arguments, Insert: l.Insert, Log: l.Log}
}

func TestNothingToLoad(t *testing.T) {
	w := newWorld(t)
	w.Wanted = ""
	w.Run(t.Context())
	if loaded, fault := w.State(); loaded != "" || fault != "" || w.cache.asked > 0 {
		t.Errorf("%q, %q", loaded, fault)
	}
}

func TestFaults(t *testing.T) {
	for words, change := range map[string]func(*world){
		"module b: exec format error (it was built for another kernel)": func(w *world) { w.err = unix.ENOEXEC },
		"it is not signed by the build of this kernel":                  func(w *world) { w.err = unix.EKEYREJECTED },
		"modules of 6.1.0-test, and 6.1.0-other runs":                   func(w *world) { w.Boot.Release = "6.1.0-other" },
		"cannot be had":                        func(w *world) { w.cache.errs = []error{errors.New("cannot be had")} },
		"kernel argument kernelbroker.modules": func(w *world) { w.Wanted = "sha256:1,2" },
	} {
		w := newWorld(t)
		change(w)
		w.Run(t.Context())
		loaded, fault := w.State()
		if loaded != "" || !strings.Contains(fault, words) {
			t.Errorf("%s: %q, %q", words, loaded, fault)
		}
		if err := (kb.Boot{BootID: strings.Repeat("b", 16), Release: release, ModulesFault: fault}).Validate(); err != nil {
			t.Errorf("%s: the broker refuses the report: %v", words, err)
		}
	}
}

// What another loads first, udev for example, is loaded.
func TestLoadedAlready(t *testing.T) {
	w := newWorld(t)
	w.err = unix.EEXIST
	w.Run(t.Context())
	if loaded, fault := w.State(); loaded != digest {
		t.Errorf("%q, %q", loaded, fault)
	}
}

func TestTriesAgain(t *testing.T) {
	w := newWorld(t)
	w.cache.errs = []error{fmt.Errorf("the broker is away: %w", kb.ErrUnavailable)}
	w.Run(t.Context())
	if loaded, fault := w.State(); loaded != digest || w.cache.asked != 2 {
		t.Errorf("%q, %q after %d tries", loaded, fault, w.cache.asked)
	}
	w = newWorld(t)
	w.cache.errs = []error{kb.ErrUnavailable}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.Run(ctx)
	if loaded, fault := w.State(); loaded != "" || fault != "" {
		t.Errorf("an agent that ends says %q, %q", loaded, fault)
	}
}

// A module's parameters are found as modprobe and the kernel find them.
func TestParameters(t *testing.T) {
	for _, c := range []struct{ arguments, module, want string }{
		{"quiet igb_uio.intr_mode=msix", "igb_uio", "intr_mode=msix"},
		{"lttng-tracer.a=1,2 lttng_tracer.b=x=y", "lttng-tracer", "a=1,2 b=x=y"},
		{"jool_common.a=1", "jool", ""},
		{"jool=1 jool.flag", "jool", "flag"},
	} {
		if got := parameters(strings.Fields(c.arguments), c.module); got != c.want {
			t.Errorf("%s of %q: %q, want %q", c.module, c.arguments, got, c.want)
		}
	}
}
