// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/filelock"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
)

// site is where make works.
type site struct {
	plan    Plan
	variant Variant
	tree    string
	obj     string
	// sampled is the sample profile that goes into each object, "" for none, and samples the text that it was made of.
	sampled, samples string
	// lock of the object folder. Make and all it starts inherit it: when this
	// process is killed, the folder stays locked until the last of them ended.
	lock *filelock.Lock
	// builder is who builds, for the manifest.
	builder string
}

// withObjects runs a build in the object folder of its source, compiler and
// flavour.
//
// All kernels of one flavour share that folder, one after the other: kbuild
// knows for each object which options it depends on, so that a kernel with a
// few other options compiles a few files, and a kernel with another profile
// those whose profile differs. The path must stay the same, since
// the tree's own tools are built again when it changes, and all objects with
// them.
//
// A process that is killed outright can leave half an object that looks
// finished. The folder is therefore marked while it is in use, and cleaned when
// it is found with the mark of a build that is gone.
//
// The folder is the direct child of one that shows the source tree by links: there
// kbuild calls the source "..". GCC tells functions apart by the names of their
// files, so counters fit wherever the cache is (ADR 0035).
func (b *Builder) withObjects(ctx context.Context, plan Plan, variant Variant, tree string, build func(at site) error) error {
	obj, err := b.objectFolder(plan, variant)
	if err != nil {
		return err
	}
	shown := filepath.Dir(obj)
	lock, err := filelock.Acquire(ctx, shown+".lock", b.Progress.Waiting("building another kernel of this source"))
	if err != nil {
		return fmt.Errorf("object folder: %w", err)
	}
	defer lock.Release()
	if err := showTree(tree, shown); err != nil {
		return fmt.Errorf("object folder: %w", err)
	}
	inUse := obj + ".in-use"
	if err := recoverObjects(obj, inUse); err != nil {
		return fmt.Errorf("object folder: left-over of a killed build: %w", err)
	}
	if err := os.MkdirAll(obj, 0o755); err != nil {
		return fmt.Errorf("object folder: %w", err)
	}
	if err := os.WriteFile(inUse, []byte(bootID()), 0o644); err != nil {
		return fmt.Errorf("object folder: %w", err)
	}
	err = build(site{plan: plan, variant: variant, tree: shown, obj: obj, lock: lock, builder: b.Name})
	if ctx.Err() != nil {
		return err
	}
	return errors.Join(err, os.Remove(inUse))
}

// objectFolder is the path as the compiler sees it, without links, since it is
// part of what a counting kernel says of itself.
func (b *Builder) objectFolder(plan Plan, variant Variant) (string, error) {
	flavour, err := plan.flavour(variant)
	if err != nil {
		return "", err
	}
	folder := filepath.Join(b.Cache.Dir, "compiled")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", fmt.Errorf("object folder: %w", err)
	}
	if folder, err = filepath.Abs(folder); err == nil {
		folder, err = filepath.EvalSymlinks(folder)
	}
	if err != nil {
		return "", fmt.Errorf("object folder: %w", err)
	}
	return filepath.Join(folder, plan.objectsKey()+flavour, "objects"), nil
}

// showTree links to everything in the top folder of a source tree. A link that
// leads elsewhere is of a tree that moved.
func showTree(tree, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(tree)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		target, link := filepath.Join(tree, entry.Name()), filepath.Join(dir, entry.Name())
		if now, err := os.Readlink(link); err == nil && now == target {
			continue
		}
		if err := errors.Join(removeIfThere(link), os.Symlink(target, link)); err != nil {
			return err
		}
	}
	return nil
}

// objectsKey names what objects can only be shared with the same of.
func (p Plan) objectsKey() string {
	sum := sha256.Sum256([]byte(p.Compiler.Version + "\n" + p.Compiler.Linker))
	return p.Source.key() + "-" + hex.EncodeToString(sum[:6])
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Cache is a folder that survives between runs. Entries are folders, complete
// from the moment they are seen; each is made under its own lock.
type Cache struct {
	Dir string
}

// DefaultCacheDir is $KB_CACHE, or kernel-broker in the user's cache folder.
func DefaultCacheDir() (string, error) {
	if dir := os.Getenv("KB_CACHE"); dir != "" {
		return dir, nil
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cache folder: %w (set KB_CACHE or use --cache)", err)
	}
	return ownCache(filepath.Join(base, "kernel-broker"), os.Geteuid())
}

// ownCache refuses the cache of another user, which root would build from after sudo with his environment: makefiles of the source
// in it are run.
func ownCache(dir string, user int) (string, error) {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		info, err = os.Stat(filepath.Dir(dir)) // in which it would be made
	}
	if errors.Is(err, fs.ErrNotExist) {
		return dir, nil
	}
	if err != nil {
		return "", fmt.Errorf("cache folder: %w (set KB_CACHE or use --cache)", err)
	}
	if of, is := info.Sys().(*syscall.Stat_t); !is || of.Uid != 0 && int(of.Uid) != user {
		return "", fmt.Errorf("cache folder %s is another user's, who could change what is built (set KB_CACHE or use --cache)", dir)
	}
	return dir, nil
}

// Entry returns the folder kind/key, and makes it if it is not there yet: fill
// gets an empty folder, which is moved into place when fill returns nil and
// removed when it does not. Of several callers, in this process or others, one
// fills and the rest wait for it; waiting is called once if there is something to wait for.
func (c Cache) Entry(ctx context.Context, kind, key string, waiting func(), fill func(dir string) error) (string, error) {
	place := filepath.Join(c.Dir, kind, key)
	if exists(place) {
		return place, nil
	}
	lock, err := filelock.Acquire(ctx, place+".lock", waiting)
	if err != nil {
		return "", fmt.Errorf("cache entry %q: %w", kind+"/"+key, err)
	}
	defer lock.Release()
	if exists(place) {
		return place, nil
	}
	partial := place + ".partial"
	if err := os.RemoveAll(partial); err != nil {
		return "", fmt.Errorf("cache entry %q: left-over of a killed run: %w", kind+"/"+key, err)
	}
	if err := os.MkdirAll(partial, 0o755); err != nil {
		return "", fmt.Errorf("cache entry %q: %w", kind+"/"+key, err)
	}
	if err := fill(partial); err != nil {
		return "", errors.Join(err, os.RemoveAll(partial))
	}
	// A name that outlives a power cut must not stand for files that do not.
	err = atomicfile.SyncAll(partial)
	if err == nil {
		err = os.Rename(partial, place)
	}
	if err != nil {
		return "", fmt.Errorf("cache entry %q: %w", kind+"/"+key, err)
	}
	return place, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Publish copies the named files to a folder, each by rename, the last named
// file last: a reader who finds that one finds the others too.
func Publish(from, to string, names ...string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return fmt.Errorf("output: %w", err)
	}
	for _, name := range names {
		if err := copyFile(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
			return fmt.Errorf("output %q: %w", filepath.Join(to, name), err)
		}
	}
	return nil
}

// PublishKernel copies all that belongs to a kernel, the manifest last.
func PublishKernel(from, to string) error {
	m, err := ReadManifest(from)
	if err != nil {
		return err
	}
	names := []string{m.Image.Name, m.Config.Name}
	for _, more := range []*File{m.SystemMap, m.ModuleArchive} {
		if more != nil {
			names = append(names, more.Name)
		}
	}
	return Publish(from, to, append(names, ManifestFile)...)
}

func copyFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }() // only read from
	return atomicfile.Fill(to, 0o644, func(target *os.File) error {
		_, err := io.Copy(target, source)
		return err
	})
}

// distrusted is the time before the end of a killed build whose files are not trusted.
const distrusted = 20 * time.Second

// bootID distinguishes a killed build from one that went down with the whole
// machine, where files may be whole by their times and empty on the disk.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "" // no object folder is reused then
	}
	return strings.TrimSpace(string(id))
}

// recoverObjects cleans the object folder of a build that did not end: it keeps whole files
// where it can identify them, and else removes all.
func recoverObjects(obj, inUse string) error {
	mark, err := os.ReadFile(inUse)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if id := bootID(); id != "" && id == string(mark) {
		return removeUnfinished(obj)
	}
	return errors.Join(os.RemoveAll(obj), os.RemoveAll(profileFolder(obj)),
		removeIfThere(complaintsFile(obj)), removeIfThere(saidFile(obj)))
}

// removeUnfinished removes from an object folder what a killed build may have left
// unfinished. Kbuild writes down the command of each target, in a file beside it,
// once the target is finished: an object without one, and any target with an
// older one, is not. The last seconds go altogether, since the file with the
// command may be the one that is half written, and some targets have none.
// Removing too much costs time and nothing else.
//
// A library of the tree's tools has no such file. It stays, as all that was
// compiled with the tool (every object, for objtool) is younger; without it the
// tool is linked again, and every object compiled again for that.
func removeUnfinished(obj string) error {
	times := map[string]time.Time{}
	var newest time.Time
	err := filepath.WalkDir(obj, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		times[path] = info.ModTime()
		if info.ModTime().After(newest) {
			newest = info.ModTime()
		}
		return nil
	})
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("object folder: %w", err)
	}
	tools := filepath.Join(obj, "tools") + string(filepath.Separator)
	for path, written := range times {
		dir, name := filepath.Split(path)
		command, has := times[dir+"."+name+".cmd"]
		switch extension := filepath.Ext(name); {
		case written.After(newest.Add(-distrusted)):
		case has && (command.Before(written) || command.After(newest.Add(-distrusted))):
		case !has && (extension == ".o" || extension == ".a") && !strings.HasPrefix(dir, tools):
		default:
			continue
		}
		if err := removeIfThere(path); err != nil {
			return fmt.Errorf("object folder: %w", err)
		}
	}
	return nil
}
