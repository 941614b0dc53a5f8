package fuzz

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// program is one that was built, and of which code each of its targets is.
type program struct {
	path  string
	codes map[string]string
}

// programs are test programs, each built once.
type programs struct {
	targets []Target // all that may be asked for
	lock    sync.Mutex
	built   map[string]func() (program, error)
}

// get makes the program of a target: that of all its package's in Go, one of its
// own in C. The code is looked at just before, since sources may change after a
// long run has begun.
func (p *programs) get(ctx context.Context, o Options, t Target) (program, error) {
	name, of := t.Package, func(other Target) bool { return other.Package == t.Package && !other.inC() }
	if t.inC() {
		name, of = t.String(), func(other Target) bool { return other == t }
	}
	p.lock.Lock()
	if p.built == nil {
		p.built = map[string]func() (program, error){}
	}
	get := p.built[name]
	if get == nil {
		get = sync.OnceValues(func() (made program, err error) {
			if made.codes, err = Codes(ctx, o.Root, o.Go, slices.DeleteFunc(slices.Clone(p.targets), func(other Target) bool { return !of(other) })); err != nil {
				return made, err
			}
			if t.inC() {
				made.path, err = o.buildC(ctx, t)
			} else {
				made.path, err = o.build(ctx, t.Package)
			}
			return made, err
		})
		p.built[name] = get
	}
	p.lock.Unlock()
	return get()
}

// build makes the program of a package, instrumented.
func (o Options) build(ctx context.Context, folder string) (string, error) {
	path := filepath.Join(o.Work, strings.ReplaceAll(folder, "/", "-")+".test")
	cmd := exec.CommandContext(ctx, o.Go, "test", "-c", "-fuzz=.", "-o", path, "./"+folder)
	cmd.Dir = o.Root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("test program of %s: %w\n%s", folder, err, out)
	}
	return path, nil
}
