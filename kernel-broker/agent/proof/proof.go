// SPDX-License-Identifier: Apache-2.0

// Package proof reads what a boot can show for itself: its boot id, the GNU
// build id and release of the running kernel, the one-time token on the command
// line, and when it began. Nothing here can be had without having booted.
package proof

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/elfnote"
)

// Read collects the proof from the proc and sys file systems mounted there.
func Read(proc, sys string) (kb.Boot, error) {
	var boot kb.Boot
	var err error
	if boot.BootID, err = line(proc, "sys/kernel/random/boot_id"); err != nil {
		return boot, err
	}
	if boot.Release, err = line(proc, "sys/kernel/osrelease"); err != nil {
		return boot, err
	}
	arguments, err := line(proc, "cmdline")
	if err != nil {
		return boot, err
	}
	boot.Token = Value(Split(arguments), kb.TokenParameter)
	notes, err := os.ReadFile(filepath.Join(sys, "kernel/notes"))
	if err != nil {
		return boot, err
	}
	if boot.BuildID, err = BuildID(notes); err != nil {
		return boot, fmt.Errorf("file %q: %w", filepath.Join(sys, "kernel/notes"), err)
	}
	stat, err := os.ReadFile(filepath.Join(proc, "stat"))
	if err != nil {
		return boot, err
	}
	if boot.BootedAt, err = bootTime(string(stat)); err != nil {
		return boot, fmt.Errorf("file %q: %w", filepath.Join(proc, "stat"), err)
	}
	return boot, nil
}

func line(root, name string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(root, name))
	return strings.TrimSpace(string(raw)), err
}

// BuildID finds the GNU build id among the ELF notes of the running kernel, in
// lower-case hex.
func BuildID(notes []byte) (string, error) {
	id := elfnote.BuildID(notes, binary.NativeEndian)
	if id == "" {
		return "", fmt.Errorf("no GNU build id: %w", kb.ErrNotFound)
	}
	return id, nil
}

func bootTime(stat string) (time.Time, error) {
	for text := range strings.Lines(stat) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(text), "btime "); ok {
			seconds, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return time.Time{}, fmt.Errorf("btime %q: %w", value, kb.ErrInvalid)
			}
			return time.Unix(seconds, 0).UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("no btime: %w", kb.ErrNotFound)
}

// Up is how long the running kernel has run.
func Up() (time.Duration, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0, fmt.Errorf("clock since boot: %w", err)
	}
	return time.Duration(now.Nano()), nil
}
