// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/filelock"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
)

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
	return filepath.Join(base, "kernel-broker"), nil
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
	if err := os.Rename(partial, place); err != nil {
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
