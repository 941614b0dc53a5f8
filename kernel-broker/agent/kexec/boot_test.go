// SPDX-License-Identifier: Apache-2.0

package kexec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/decide"
)

// fakeNode is a cache and a kexec in one, which remembers in which order they were
// used. A file may be spoiled at any time.
type fakeNode struct {
	files    map[string]bool // whole or spoiled
	verified map[string]bool // since its last change
	kept     []string
	loads    int
	bad      error
	line     string
	initrd   string
	asked    []string
	refusal  error
}

func newFakeNode() *fakeNode { return &fakeNode{files: map[string]bool{}, verified: map[string]bool{}} }

func (f *fakeNode) Keep(digests ...string) { f.kept = digests }

func (f *fakeNode) Ensure(_ context.Context, digest string, _ uint64) error {
	f.files[digest], f.verified[digest] = true, false
	return nil
}

// Sealed gives a file whose content is its digest.
func (f *fakeNode) Sealed(_ context.Context, digest string, _ uint64) (*os.File, error) {
	if !f.files[digest] {
		delete(f.files, digest)
		return nil, fmt.Errorf("artifact %s: %w", digest, ErrDamaged)
	}
	f.verified[digest] = true
	return fileOf(digest)
}

func fileOf(content string) (*os.File, error) {
	file, err := os.CreateTemp("", "boot")
	if err != nil {
		return nil, err
	}
	_, err = file.WriteString(content)
	return file, errors.Join(err, os.Remove(file.Name()))
}

func contentOf(file *os.File) string {
	if file == nil {
		return ""
	}
	raw := make([]byte, 100)
	n, _ := file.ReadAt(raw, 0)
	return string(raw[:n])
}

func (f *fakeNode) Allow(context.Context, kb.Kernel, []byte) error {
	f.asked = append(f.asked, "allow")
	return f.refusal
}

func (f *fakeNode) Admit(_ context.Context, _ kb.Kernel, envelope []byte) error {
	f.asked = append(f.asked, "admit "+string(envelope))
	return f.refusal
}

func (f *fakeNode) spoil(digest string) {
	if _, there := f.files[digest]; there {
		f.files[digest], f.verified[digest] = false, false
	}
}

func (f *fakeNode) Load(_ context.Context, image, initrd *os.File, line string) error {
	for _, digest := range []string{contentOf(image), contentOf(initrd)} {
		if digest != "" && digest != own && !f.verified[digest] {
			return fmt.Errorf("loaded %s unchecked", digest)
		}
	}
	f.loads++
	f.line, f.initrd = line, contentOf(initrd)
	f.asked = append(f.asked, "load")
	return f.bad
}

// own is in the node's own initrd.
const own = "the node's"

func (f *fakeNode) Unload(context.Context) error  { return nil }
func (f *fakeNode) Execute(context.Context) error { return nil }

func (f *fakeNode) Prepare(context.Context) error { return nil }

func booter(t interface {
	TempDir() string
	Fatal(...any)
}, f *fakeNode) *Booter {
	proc := t.TempDir()
	if err := os.WriteFile(filepath.Join(proc, "cmdline"), []byte("root=/dev/vda quiet\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	initrd := filepath.Join(proc, "initrd")
	if err := os.WriteFile(initrd, []byte(own), 0o644); err != nil {
		t.Fatal(err)
	}
	return &Booter{Artifacts: f, Tools: f, Trust: f, Keep: Keep{"root"}, Proc: proc, Initrd: initrd}
}

func target(image, initrd string) decide.Target {
	return decide.Target{
		Kernel: kb.Kernel{Profile: "mitgcm", Version: 3, ImageDigest: image, InitrdDigest: initrd, Arguments: []string{"nosmt"}},
		Token:  strings.Repeat("0a", 16),
	}
}

// TestNothingUncheckedIsLoaded: whatever happens to the cache and in whatever
// order, a load is of files that were checked after their last change.
func TestNothingUncheckedIsLoaded(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(r *rapid.T) {
		f := newFakeNode()
		b := booter(fixedDir{t, dir}, f)
		targets := []decide.Target{target("a", ""), target("a", "i"), target("b", "i")}
		for range rapid.IntRange(1, 30).Draw(r, "steps") {
			x := rapid.SampledFrom(targets).Draw(r, "target")
			switch rapid.IntRange(0, 2).Draw(r, "step") {
			case 0:
				if err := b.Fetch(t.Context(), x); err != nil {
					r.Fatal(err)
				}
			case 1:
				f.spoil(rapid.SampledFrom([]string{"a", "b", "i"}).Draw(r, "file"))
			case 2:
				before := f.loads
				err := b.Load(t.Context(), x)
				if err != nil && !errors.Is(err, ErrDamaged) {
					r.Fatal(err)
				}
				if (err == nil) != (f.loads == before+1) {
					r.Fatalf("%d loads, %v", f.loads-before, err)
				}
			}
		}
	})
}

// fixedDir gives rapid's many rounds one folder.
type fixedDir struct {
	*testing.T
	dir string
}

func (f fixedDir) TempDir() string { return f.dir }

func TestInitrds(t *testing.T) {
	f := newFakeNode()
	b := booter(t, f)
	for _, c := range []struct{ artifact, want string }{{"", own}, {"i", "i"}} {
		x := target("a", c.artifact)
		if err := errors.Join(b.Fetch(t.Context(), x), b.Load(t.Context(), x)); err != nil {
			t.Fatal(err)
		}
		if f.initrd != c.want {
			t.Errorf("artifact %q: loaded initrd %q, want %q", c.artifact, f.initrd, c.want)
		}
	}
	if !slices.Equal(f.kept, []string{"a", "i"}) {
		t.Errorf("kept %v", f.kept)
	}
	if want := "kernelbroker.begin root=/dev/vda nosmt kernelbroker.token=" + strings.Repeat("0a", 16); f.line != want {
		t.Errorf("command line %q", f.line)
	}
}

// The node has the modules before it boots, and the next agent is told which they are.
func TestModules(t *testing.T) {
	f := newFakeNode()
	b := booter(t, f)
	x := target("a", "")
	x.Kernel.ModulesDigest, x.Kernel.ModulesSize = "i", 7
	if err := errors.Join(b.Fetch(t.Context(), x), b.Load(t.Context(), x)); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(f.kept, []string{"a", "i"}) || f.initrd != own {
		t.Errorf("kept %v, loaded initrd %q", f.kept, f.initrd)
	}
	if want := "kernelbroker.begin root=/dev/vda nosmt kernelbroker.modules=i,7 kernelbroker.token=" + strings.Repeat("0a", 16); f.line != want {
		t.Errorf("command line %q", f.line)
	}
}

// The arguments for system cores come from the node's own topology, whatever the line before had.
func TestSystemCores(t *testing.T) {
	f := newFakeNode()
	b := booter(t, f)
	b.Keep = Keep{"root", "kernelbroker.*"}
	before := "root=/dev/vda nohz_full=5 irqaffinity=1 kernelbroker.system_cpus=1 kernelbroker.token=" + oldToken
	if err := os.WriteFile(filepath.Join(b.Proc, "cmdline"), []byte(before), 0o644); err != nil {
		t.Fatal(err)
	}
	b.Topology = func() (kb.Topology, error) {
		return kb.Topology{{CPUs: []int{0, 2}}, {CPUs: []int{1, 3}}}, nil
	}
	target := decide.Target{Kernel: kb.Kernel{Profile: "mitgcm", Version: 1, ImageDigest: "image", Arguments: []string{"quiet"}, SystemCores: 1}, Token: newToken}
	if err := errors.Join(b.Fetch(t.Context(), target), b.Load(t.Context(), target)); err != nil {
		t.Fatal(err)
	}
	want := "kernelbroker.begin root=/dev/vda quiet isolcpus=managed_irq,1,3 nohz_full=1,3 rcu_nocbs=1,3 irqaffinity=0,2 " +
		"systemd.cpu_affinity=0,2 kernelbroker.system_cpus=0,2 kernelbroker.token=" + newToken
	if f.line != want {
		t.Errorf("got %s\nwant %s", f.line, want)
	}
	// The next kernel has none of it.
	if err := os.WriteFile(filepath.Join(b.Proc, "cmdline"), []byte(f.line), 0o644); err != nil {
		t.Fatal(err)
	}
	target.Kernel.SystemCores = 0
	if err := b.Load(t.Context(), target); err != nil || f.line != "kernelbroker.begin root=/dev/vda quiet kernelbroker.token="+newToken {
		t.Errorf("without system cores: %s, %v", f.line, err)
	}
	loads := f.loads
	target.Kernel.SystemCores = 2
	if err := b.Load(t.Context(), target); !errors.Is(err, ErrKernel) || !strings.Contains(err.Error(), "none is left for the application") {
		t.Errorf("no core for the application: %v", err)
	}
	target.Kernel.SystemCores = 1
	b.Keep = Keep{"root", "irqaffinity"}
	if err := b.Load(t.Context(), target); !errors.Is(err, ErrKernel) || !strings.Contains(err.Error(), "boot.keep_arguments") {
		t.Errorf("the site keeps its own irqaffinity: %v", err)
	}
	b.Topology = func() (kb.Topology, error) { return nil, os.ErrNotExist }
	if err := b.Load(t.Context(), target); errors.Is(err, ErrKernel) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no topology, which is the node's fault: %v", err)
	}
	if f.loads != loads {
		t.Error("something was loaded")
	}
}

func TestWhoseFault(t *testing.T) {
	f := newFakeNode()
	b := booter(t, f)
	x := target("a", "")
	if err := b.Load(t.Context(), x); !errors.Is(err, ErrDamaged) || errors.Is(err, ErrKernel) {
		t.Errorf("nothing fetched: %v", err)
	}
	if err := b.Fetch(t.Context(), x); err != nil {
		t.Fatal(err)
	}
	f.bad = fmt.Errorf("kexec: %w", errImage)
	if err := b.Load(t.Context(), x); !errors.Is(err, ErrKernel) {
		t.Errorf("no kernel: %v", err)
	}
	f.bad = errors.New("no memory")
	if err := b.Load(t.Context(), x); err == nil || errors.Is(err, ErrKernel) {
		t.Errorf("no memory: %v", err)
	}
	x.Kernel.Arguments = []string{"root=/dev/sdb"}
	if err := b.Load(t.Context(), x); !errors.Is(err, ErrKernel) {
		t.Errorf("an argument of the node's: %v", err)
	}
	b.Proc = "/nonexistent"
	if err := b.Load(t.Context(), x); err == nil || errors.Is(err, ErrKernel) {
		t.Errorf("no command line: %v", err)
	}
}

// The node is asked before anything is fetched, and once more when everything
// is in its place.
func TestTrustIsAskedTwice(t *testing.T) {
	f := newFakeNode()
	b := booter(t, f)
	x := target("a", "i")
	x.Envelope = []byte("signed")
	if err := errors.Join(b.Fetch(t.Context(), x), b.Load(t.Context(), x)); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(f.asked, ", "); got != "allow, admit signed, load" {
		t.Errorf("asked %s", got)
	}
	for name, c := range map[string]struct {
		refusal error
		kernel  bool
	}{"refused": {fmt.Errorf("key: %w", ErrKernel), true}, "no list": {errors.New("no list"), false}} {
		f := newFakeNode()
		f.refusal = c.refusal
		b := booter(t, f)
		if err := b.Fetch(t.Context(), x); !errors.Is(err, c.refusal) || errors.Is(err, ErrKernel) != c.kernel {
			t.Errorf("%s: fetch: %v", name, err)
		}
		if len(f.files) != 0 || f.kept != nil {
			t.Errorf("%s: fetched %v, kept %v", name, f.files, f.kept)
		}
		f.files["a"], f.files["i"] = true, true
		if err := b.Load(t.Context(), x); !errors.Is(err, c.refusal) || errors.Is(err, ErrKernel) != c.kernel || f.loads != 0 {
			t.Errorf("%s: load: %v, %d loads", name, err, f.loads)
		}
		if err := b.Admit(t.Context(), x); !errors.Is(err, c.refusal) || errors.Is(err, ErrKernel) != c.kernel {
			t.Errorf("%s: before the boot: %v", name, err)
		}
	}
}
