// SPDX-License-Identifier: Apache-2.0

// Package modules loads the modules that belong to the running kernel, before the agent tells the broker of the boot: which
// they are is part of what proves it.
package modules

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/kexec"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
	archives "github.com/kernelbroker/kernelbroker/kernel-broker/internal/modules"
)

// retryAfter is the pause between two tries to have the archive.
const retryAfter = time.Second

// Loader loads the modules of one boot.
type Loader struct {
	// Wanted is the value of kb.ModulesParameter in this boot; empty if its kernel has no modules of others.
	Wanted string
	Boot   kb.Boot
	// Dir keeps the unpacked modules for this boot; it must not outlast it.
	Dir string
	// Tree is where modprobe looks for modules, /lib/modules.
	Tree     string
	Archives kexec.Artifacts
	// Arguments are those of the running kernel: MODULE.PARAMETER=VALUE is for a module.
	Arguments []string
	// Insert gives a module and its parameters to the kernel; InsertModule outside tests.
	Insert func(file *os.File, parameters string) error
	Log    *slog.Logger

	mu     sync.Mutex
	loaded string
	fault  string
}

// State is which archive's modules are loaded, and why not where they are not.
func (l *Loader) State() (loaded, fault string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.loaded, l.fault
}

// Run loads the modules, unless an agent before it in this boot did. It returns when they are loaded, when they cannot be,
// or with the context; an archive that cannot be had now is tried again: the broker bounds the boot.
func (l *Loader) Run(ctx context.Context) {
	digest, size, err := parse(l.Wanted)
	if err == nil && digest == "" {
		return
	}
	for err == nil {
		if err = l.once(ctx, digest, size); !errors.Is(err, kb.ErrUnavailable) && !errors.Is(err, kexec.ErrDamaged) {
			break
		}
		l.Log.Warn("modules not loaded yet", "archive", digest, "error", err)
		err = nil
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryAfter):
		}
	}
	if ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.fault = kb.OneLine(err.Error())
		l.Log.Error("modules not loaded", "archive", digest, "error", err)
		return
	}
	l.loaded = digest
}

// parse takes the parameter apart. The agent before the boot wrote it.
func parse(wanted string) (digest string, size uint64, err error) {
	if wanted == "" {
		return "", 0, nil
	}
	digest, text, _ := strings.Cut(wanted, ",")
	if size, err = strconv.ParseUint(text, 10, 63); err == nil {
		err = kb.ValidateDigest(digest)
	}
	if err != nil {
		return "", 0, fmt.Errorf("kernel argument %s=%.100q: %w", kb.ModulesParameter, wanted, err)
	}
	return digest, size, nil
}

func (l *Loader) once(ctx context.Context, digest string, size uint64) error {
	mark := filepath.Join(l.Dir, "loaded")
	if is, err := os.ReadFile(mark); err == nil && string(is) == l.mark(digest) {
		return nil
	}
	l.Archives.Keep(digest)
	if err := l.Archives.Ensure(ctx, digest, size); err != nil {
		return err
	}
	file, err := l.Archives.Sealed(ctx, digest, size)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // only read from
	if err := errors.Join(os.RemoveAll(l.Dir), os.MkdirAll(l.Dir, 0o755)); err != nil {
		return err
	}
	list, err := archives.Unpack(file, l.Dir)
	if err != nil {
		return err
	}
	if list.Release != l.Boot.Release {
		return fmt.Errorf("modules of %s, and %s runs: %w", list.Release, l.Boot.Release, kb.ErrInvalid)
	}
	if err := l.link(list); err != nil {
		l.Log.Warn("modprobe does not find the modules", "error", err)
	}
	began := time.Now()
	for _, name := range list.Load {
		if err := l.insert(filepath.Join(list.Tree(l.Dir), name)); err != nil {
			return err
		}
	}
	l.Log.Info("modules loaded", "archive", digest, "modules", len(list.Load), "took_ms", time.Since(began).Milliseconds())
	return atomicfile.Write(mark, []byte(l.mark(digest)), 0o644)
}

func (l *Loader) mark(digest string) string { return l.Boot.BootID + " " + digest + "\n" }

func (l *Loader) insert(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	name := strings.TrimSuffix(filepath.Base(path), ".ko")
	err = l.Insert(file, parameters(l.Arguments, name))
	_ = file.Close() // only read from
	if errors.Is(err, fs.ErrExist) {
		return nil // something else, udev for example, was quicker
	}
	if err != nil {
		return fmt.Errorf("module %s: %w", name, explained(err))
	}
	return nil
}

// InsertModule loads a module into the running kernel.
func InsertModule(file *os.File, parameters string) error {
	return unix.FinitModule(int(file.Fd()), parameters, 0)
}

// parameters are a module's among the kernel's arguments, as the kernel takes them for what is built in.
func parameters(arguments []string, module string) string {
	var own []string
	for _, argument := range arguments {
		name, value, _ := strings.Cut(argument, "=")
		of, parameter, is := strings.Cut(name, ".")
		if is && (kb.Parameters{module}).Has(of) {
			own = append(own, strings.TrimSuffix(parameter+"="+value, "="))
		}
	}
	return strings.Join(own, " ")
}

// unsigned is what a kernel that enforces signatures says in several ways.
const unsigned = "it is not signed by the build of this kernel"

// explained adds what the kernel's errors mean for a module.
func explained(err error) error {
	for errno, means := range map[error]string{
		unix.ENOEXEC:      "it was built for another kernel",
		unix.EKEYREJECTED: unsigned,
		unix.ENOKEY:       unsigned,
		unix.EBADMSG:      unsigned,
		unix.ENOENT:       "something that it needs is neither in the kernel nor in a module: a symbol, an algorithm",
		unix.ENODEV:       "its hardware is not in this node",
	} {
		if errors.Is(err, errno) {
			return fmt.Errorf("%w (%s)", err, means)
		}
	}
	return err
}

// link lets modprobe, and the kernel that calls it, find the modules by their names. The links of kernels that ran before are
// removed: they lead nowhere.
func (l *Loader) link(list archives.List) error {
	entries, err := os.ReadDir(l.Tree)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, entry := range entries {
		path := filepath.Join(l.Tree, entry.Name())
		if to, err := os.Readlink(path); err == nil && strings.HasPrefix(to, l.Dir+"/") {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	if err := os.MkdirAll(l.Tree, 0o755); err != nil {
		return err
	}
	err = os.Symlink(list.Tree(l.Dir), filepath.Join(l.Tree, list.Release))
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already: %w", filepath.Join(l.Tree, list.Release), err)
	}
	return err
}
