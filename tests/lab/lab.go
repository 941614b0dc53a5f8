// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Lab is a running cluster. Its methods are safe for concurrent use.
type Lab struct {
	layout layout
	state  state
	// tie is the end of a pipe whose closing ends an owned lab.
	tie *os.File
}

// state is the content of state.json.
type state struct {
	Options      Options   `json:"options"`
	System       system    `json:"system"`
	Mode         Mode      `json:"mode"`
	Accounts     []account `json:"accounts"`
	Kernel       Kernel    `json:"kernel"`
	Accel        string    `json:"accel"`
	AccelWhy     string    `json:"accel_why"`
	HolderPID    int       `json:"holder_pid"`
	PidNamespace string    `json:"pid_namespace"`
}

func (l *Lab) save() error {
	text, err := json.MarshalIndent(l.state, "", "  ")
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	if err := os.WriteFile(l.layout.state(), text, 0o644); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	return nil
}

// Dir is the lab's folder.
func (l *Lab) Dir() string { return l.layout.dir }

// Options are those the lab was brought up with, defaults filled in.
func (l *Lab) Options() Options { return l.state.Options }

// Kernel is the firmware's kernel.
func (l *Lab) Kernel() Kernel { return l.state.Kernel }

// FrontLog is a file of the front-end's /var/log as the host sees it.
func (l *Lab) FrontLog(name string) string { return l.layout.path("logs", name) }

// Conf is a file of /etc/slurm as the host sees it; nodes see changes at once.
func (l *Lab) Conf(name string) string { return l.layout.path("share/conf/slurm", name) }

// Inside is a path of the front-end as the host sees it, while the lab is up.
func (l *Lab) Inside(path string) string {
	return fmt.Sprintf("/proc/%d/root%s", l.state.HolderPID, path)
}

// Home is a user's home folder as the host sees it.
func (l *Lab) Home(user string) string { return l.layout.path("share/home", user) }

// Open attaches to a lab that another process brought up.
func Open(dir string) (*Lab, error) {
	l, err := load(dir)
	if err != nil {
		return nil, err
	}
	if !l.state.alive() {
		return nil, fmt.Errorf("lab %q: %w", l.layout.dir, ErrDown)
	}
	return l, nil
}

func load(dir string) (*Lab, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("lab folder %q: %w", dir, err)
	}
	l := &Lab{layout: layout{dir}}
	text, err := os.ReadFile(l.layout.state())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("lab %q: %w", dir, ErrDown)
	}
	if err != nil {
		return nil, fmt.Errorf("lab %q: %w", dir, err)
	}
	if err := json.Unmarshal(text, &l.state); err != nil {
		return nil, fmt.Errorf("lab %q: state: %w", dir, err)
	}
	return l, l.recoverHolder()
}

// Up starts a lab and returns when all nodes are idle. After an error nothing runs any more, and logs and consoles stay
// in the folder.
func Up(ctx context.Context, o Options) (*Lab, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	l := &Lab{layout: layout{o.Dir}}
	l.state.Options = o
	if l.state.System, err = findSystem(ctx, o); err != nil {
		return nil, err
	}
	if err := missingPrograms(o, l.state.System); err != nil {
		return nil, err
	}
	if l.state.Mode, err = detectMode(); err != nil {
		return nil, err
	}
	l.state.Accounts = accounts(l.state.Mode, os.Geteuid())
	if err := l.tidy(ctx); err != nil {
		return nil, err
	}
	if err := l.layout.make(o.Nodes); err != nil {
		return nil, err
	}
	if err := l.up(ctx); err != nil {
		// The caller's context may be done; cleaning up must not depend on it.
		down := l.Down(context.WithoutCancel(ctx), true)
		return nil, errors.Join(fmt.Errorf("lab %q: %w", o.Dir, err), down)
	}
	return l, nil
}

// tidy removes files of an earlier lab.
func (l *Lab) tidy(ctx context.Context) error {
	if old, err := load(l.layout.dir); err == nil {
		if old.state.alive() {
			return fmt.Errorf("lab %q: already up: bring it down first", l.layout.dir)
		}
		return old.Down(ctx, false)
	}
	if _, err := os.Stat(l.layout.mark()); err != nil {
		return nil
	}
	return l.remove(ctx, false)
}

func (l *Lab) up(ctx context.Context) error {
	start := time.Now()
	if err := l.save(); err != nil {
		return err
	}
	if err := l.build(ctx); err != nil {
		return err
	}
	if err := l.prepare(); err != nil {
		return err
	}
	if err := l.startHolder(ctx); err != nil {
		return err
	}
	// The machines take seconds to boot; meanwhile the front-end starts.
	var machines, front error
	var wg sync.WaitGroup
	wg.Go(func() { machines = l.startMachines(ctx) })
	wg.Go(func() { front = l.startFront(ctx) })
	wg.Wait()
	if err := errors.Join(machines, front); err != nil {
		return err
	}
	l.progress("front-end: slurmctld %s answers (%s mode)", l.state.Options.Slurm.Version, l.state.Mode)
	if l.state.Options.NoWait {
		return nil
	}
	if err := l.WaitIdle(ctx, l.state.Options.ReadyTimeout); err != nil {
		return err
	}
	l.progress("up: %d nodes idle after %.1f s", l.state.Options.Nodes, time.Since(start).Seconds())
	return nil
}

// build finds the kernel, makes initrd and disk image, and chooses the
// accelerator.
func (l *Lab) build(ctx context.Context) error {
	cache, err := cacheDir()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	k, err := findKernel(ctx, l.state.Options, cache)
	if err != nil {
		return err
	}
	if err := copyFile(k.Image, l.layout.path("boot/bzImage"), 0o644); err != nil {
		return err
	}
	if k.Modules != "" {
		initrd, err := buildInitrd(k)
		if err != nil {
			return fmt.Errorf("kernel %q: initrd: %w", k.Name, err)
		}
		k.Initrd = l.layout.path("boot/initrd.img")
		if err := write(k.Initrd, string(initrd), 0o644); err != nil {
			return err
		}
	}
	l.state.Kernel = k
	l.progress("kernel: %s, %s", k.Name, k.Release)
	image, err := l.buildDisk(ctx, cache, k)
	if err != nil {
		return err
	}
	return l.chooseAccel(ctx, cache, k, image)
}

func (l *Lab) buildDisk(ctx context.Context, cache string, k Kernel) (string, error) {
	start := time.Now()
	list, err := imageEntries(l.state.Options, l.state.System, k)
	if err != nil {
		return "", err
	}
	image, cached, err := buildImage(ctx, cache, list)
	if err != nil {
		return "", err
	}
	how := "built"
	if cached {
		how = "from the cache"
	}
	// A link is enough on the same file system; the image is never written.
	own := l.layout.path("boot/root.ext4")
	if err := os.Link(image, own); err != nil {
		if err := copyFile(image, own, 0o644); err != nil {
			return "", err
		}
	}
	l.progress("disk image: %s in %.1f s", how, time.Since(start).Seconds())
	return own, nil
}

func (l *Lab) chooseAccel(ctx context.Context, cache string, k Kernel, image string) error {
	l.state.Accel, l.state.AccelWhy = l.state.Options.Accel, "as asked"
	if l.state.Accel == "" {
		var err error
		l.state.Accel, l.state.AccelWhy, err = accelerator(ctx, cache, k, image)
		if err != nil {
			return fmt.Errorf("accelerator: %w", err)
		}
	}
	l.progress("accelerator: %s (%s)", l.state.Accel, l.state.AccelWhy)
	return nil
}

func (l *Lab) startMachines(ctx context.Context) error {
	for _, n := range l.Nodes() {
		if err := l.startMachine(ctx, n.index); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lab) progress(format string, args ...any) {
	if w := l.state.Options.Progress; w != nil {
		// A closed terminal is no reason to stop a lab half-way.
		_, _ = fmt.Fprintf(w, "lab: "+format+"\n", args...)
	}
}
