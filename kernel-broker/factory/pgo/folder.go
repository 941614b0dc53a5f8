// SPDX-License-Identifier: Apache-2.0

package pgo

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
)

// Mangled is GCC's own: the path of the object below -fprofile-prefix-path,
// with # for each slash.
func Mangled(object string) string {
	return strings.ReplaceAll(object, "/", "#") + suffix
}

// object is the way back from Mangled; false for other files.
func object(name string) (string, bool) {
	short, ok := strings.CutSuffix(name, suffix)
	short = strings.ReplaceAll(short, "#", "/")
	return short, ok && isObject(short)
}

// WriteFor writes the profile into a folder, where GCC finds it. The folder must
// be empty or not there yet, and the names must be those of Below.
func (p Profile) WriteFor(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("profile: %s is not empty", dir)
	}
	for name, data := range p.Encoded() {
		if err := os.WriteFile(filepath.Join(dir, Mangled(name)), data, 0o644); err != nil {
			return fmt.Errorf("profile of %q: %w", name, err)
		}
	}
	return nil
}

// ReadFolder reads a folder that WriteFor wrote.
func ReadFolder(dir string) (map[string][]byte, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	files := make(map[string][]byte, len(entries))
	for _, entry := range entries {
		name, ok := object(entry.Name())
		if !ok {
			return nil, fmt.Errorf("profile: %q is no profile of an object", filepath.Join(dir, entry.Name()))
		}
		if files[name], err = os.ReadFile(filepath.Join(dir, entry.Name())); err != nil {
			return nil, fmt.Errorf("profile of %q: %w", name, err)
		}
	}
	return files, nil
}

// Swap makes the folder dir, which objects were compiled with, hold the wanted
// files (as ReadFolder gives them), and returns the objects that must be
// compiled again. It calls forget with each of them before it touches its
// profile, so that after a crash no object is left that a newer profile seems
// to fit.
func Swap(wanted map[string][]byte, dir string, forget func(object string) error) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	present, err := ReadFolder(dir)
	if err != nil {
		return nil, err
	}
	changed := Changed(present, wanted)
	for _, name := range changed {
		if err := forget(name); err != nil {
			return nil, fmt.Errorf("object of %q: %w", name, err)
		}
		path := filepath.Join(dir, Mangled(name))
		if data, stays := wanted[name]; stays {
			err = os.WriteFile(path, data, 0o644)
		} else if err = os.Remove(path); errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		if err != nil {
			return nil, fmt.Errorf("profile of %q: %w", name, err)
		}
	}
	return changed, nil
}

// Changed lists the objects whose profile is not the same in both, sorted.
func Changed(before, after map[string][]byte) []string {
	var changed []string
	for name, data := range before {
		if other, both := after[name]; !both || !bytes.Equal(data, other) {
			changed = append(changed, name)
		}
	}
	for name := range after {
		if _, both := before[name]; !both {
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	return changed
}

// FolderDigest is the digest of the profile that a folder holds.
func FolderDigest(dir string) (string, error) {
	files, err := ReadFolder(dir)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&text, "%s %s\n", digest.Of(files[name]), name)
	}
	return digest.Of([]byte(text.String())), nil
}

// Lines for the script of a guest that runs a counting kernel, with debugfs
// mounted in its usual place and /out as the folder that comes out of it.
const (
	// GuestReset forgets what boot and warming up counted.
	GuestReset = "echo 1 >/sys/kernel/debug/gcov/reset || exit\n"
	// GuestCollect copies all counters to /out/gcov, for Load. To copy a
	// thousand files is work for the kernel too, and more than some workloads:
	// so it is done a second time from zero, which shows what part of the
	// counters is the copying's.
	GuestCollect = "gcov_copy() {\n" +
		"\tmkdir -p \"$1\" && (cd /sys/kernel/debug/gcov && find . -name '*.gcda' -exec cp --parents -t \"$1\" {} +)\n" +
		"}\n" +
		"gcov_copy /out/" + GuestFolder + " || exit\n" +
		GuestReset +
		"gcov_copy /out/" + GuestFolder + Copying + " || exit\n"
	// GuestFolder is where Load finds them below the files of a guest.
	GuestFolder = "gcov"
)

// Copying is what the folder with the counters of the copying alone is called,
// after the one with all.
const Copying = ".copying"

// Load reads every .gcda file below a folder; their names are paths below it.
// Where a guest left the counters of the copying beside it, they are taken
// away: what ran for nothing else counts as never run.
func Load(dir string) (Profile, error) {
	profile, err := load(dir)
	if err != nil {
		return Profile{}, err
	}
	if _, err := os.Stat(dir + Copying); errors.Is(err, os.ErrNotExist) {
		return profile, nil
	}
	noise, err := load(dir + Copying)
	if err != nil {
		return Profile{}, err
	}
	if profile, err = profile.joined(noise, profile.Runs, subtract); err != nil {
		return Profile{}, fmt.Errorf("counters of the copying: %w", err)
	}
	return profile, nil
}

// subtract stays at zero: where two runs are not exactly of one flow, GCC corrects
// the sums.
func subtract(a, b int64) (int64, error) { return max(a-b, 0), nil }
