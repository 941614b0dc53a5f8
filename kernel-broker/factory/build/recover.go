// SPDX-License-Identifier: Apache-2.0

package build

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

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
