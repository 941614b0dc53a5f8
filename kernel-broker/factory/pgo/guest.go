// SPDX-License-Identifier: Apache-2.0

package pgo

import (
	"errors"
	"fmt"
	"maps"
	"os"
)

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
	if profile, err = profile.less(noise); err != nil {
		return Profile{}, fmt.Errorf("counters of the copying: %w", err)
	}
	return profile, nil
}

// less takes another run's counters away. None falls below zero; where the two
// are not exactly of one flow, GCC corrects the sums.
func (p Profile) less(noise Profile) (Profile, error) {
	rest := Profile{Files: maps.Clone(p.Files), Runs: p.Runs}
	for _, name := range noise.Names() {
		mine, both := p.Files[name]
		if !both {
			continue
		}
		file, err := mine.with(noise.Files[name], subtract)
		if err != nil {
			return Profile{}, fmt.Errorf("profile of %q: %w", name, err)
		}
		rest.Files[name] = file
	}
	return rest, nil
}

func subtract(a, b int64) (int64, error) { return max(a-b, 0), nil }
