// SPDX-License-Identifier: Apache-2.0

// Package vm runs one guest: a kernel, a small root file system in memory and
// a script. It hands back the script's exit code, what the guest printed and
// the files that the script left below /out.
//
// The guest needs little of its kernel, since kernels that were slimmed to the
// bone have to run too: an initramfs, devtmpfs and the 8250 serial driver. The
// first serial port is the console; the result comes over the second one as a
// compressed tar, because a serial port is there on every kernel, is
// synchronous, and so does not disturb a run that has to repeat exactly.
//
// A kernel that panics, hangs or resets is an expected outcome here and has an
// error type of its own, BootError.
package vm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Guest is a machine to be started. Kernel, Initrd and Limit have to be set.
type Guest struct {
	// Kernel is a bzImage, Initrd an archive from BuildInitrd.
	Kernel string
	Initrd string
	// Arguments are appended to the kernel's command line, and so win over the
	// ones that are there already.
	Arguments []string
	// CPUs and MemoryMiB are 1 and 512 if they are 0.
	CPUs      int
	MemoryMiB int
	// Processor is a model of the emulator's; "" is Haswell.
	Processor string
	// Exact makes the guest's clock count instructions, so that a run repeats
	// to the instruction as long as it uses no disk. It is slower, and for one
	// CPU: with two of them a kernel waits, at that clock, for minutes.
	Exact bool
	// KVM runs the guest on the host's own processor, as that is.
	KVM bool
	// Every is the time between two looks at the console; 50 ms if it is 0.
	Every time.Duration
	// Plugins are loaded into QEMU's translator.
	Plugins []Plugin
	// Disk is the size in bytes of an empty disk, /dev/vda; 0 is none.
	Disk int64
	// Limit is the wall time after which the guest counts as hung.
	Limit time.Duration
	// Console gets what the guest prints, while it runs; may be nil.
	Console io.Writer
}

// Plugin is a plugin for QEMU's translator, with its arguments as key=value.
type Plugin struct {
	Path string
	Args []string
}

// Result is what a guest that ran to its end left behind.
type Result struct {
	// ExitCode is the script's.
	ExitCode int
	// Files is the folder that holds what the script put below /out.
	Files string
	// Console is the file with all that the guest printed.
	Console string
	// Wall is the time from power on to power off.
	Wall time.Duration
}

// Reason says in which way a guest failed to come to its end.
type Reason string

const (
	// ReasonPanic: the kernel said so.
	ReasonPanic Reason = "kernel panic"
	// ReasonHang: the limit passed.
	ReasonHang Reason = "no end within the limit"
	// ReasonReset: the machine went off and no whole result had come.
	ReasonReset Reason = "went off without a result"
	// ReasonInit: the kernel could not execute the first program. It then looks
	// for others, and busybox is one that waits for input.
	ReasonInit Reason = "the first program does not start"
	// ReasonEndless: it would have filled this host's disk.
	ReasonEndless Reason = "too much output"
)

// BootError is a kernel that did not carry the script to its end.
type BootError struct {
	Reason Reason
	// Said is the line with which the kernel gave up, if it did.
	Said string
	// Tail is the end of what the guest printed.
	Tail string
	// Console is the file with all of it.
	Console string
	// Err is a further cause, if there is one.
	Err error
}

func (e *BootError) Error() string {
	text := "guest: " + string(e.Reason)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	if e.Said != "" {
		text += ": " + e.Said
	}
	return fmt.Sprintf("%s; the console's end:\n%s\n(whole console: %s)", text, e.Tail, e.Console)
}

func (e *BootError) Unwrap() error { return e.Err }

// OfAnotherMachine says whose words the error has, unless it has a cause on
// this machine.
func (e *BootError) OfAnotherMachine() bool { return e.Err == nil }

const (
	defaultCPUs   = 1
	defaultMemory = 512
	// Every emulated run has one model: the kernel patches itself by what the processor can do, and what is measured has to
	// be what was trained.
	defaultProcessor = "Haswell"
)

func (g Guest) validate() error {
	switch {
	case g.Kernel == "":
		return errors.New("guest: no kernel")
	case g.Initrd == "":
		return errors.New("guest: no initrd")
	case g.Exact && g.CPUs > 1:
		return fmt.Errorf("guest: exact, and %d CPUs", g.CPUs)
	case g.KVM && (g.Exact || len(g.Plugins) > 0):
		return errors.New("guest: nothing is counted on the host's own processor")
	case g.Limit <= 0:
		return errors.New("guest: no limit")
	case g.CPUs < 0 || g.MemoryMiB < 0 || g.Disk < 0:
		return fmt.Errorf("guest: %d CPUs, %d MiB, %d bytes of disk", g.CPUs, g.MemoryMiB, g.Disk)
	}
	return nil
}

// How much of the console an error carries: lines may be of any length.
const (
	tailLines = 40
	tailBytes = 16 << 10
)

// panicMark is how every kernel since 2.4 says that it gives up, initMark that
// it goes on without the guest's first program.
var (
	panicMark = []byte("Kernel panic - not syncing")
	initMark  = []byte("Failed to execute /init")
)

// console follows the file that QEMU writes the first serial port to. A file,
// not a pipe: a pipe may be full, and then QEMU's timing shows in the guest.
type console struct {
	path     string
	copy     io.Writer
	offset   int64
	rest     []byte // the end of what was read, for a word cut in two
	panicked bool
	astray   bool // the first program is not ours
	endless  bool // more came than a guest has reason to send
}

// mostConsole is far more than any boot says. A kernel that warns in a loop says so
// much in a minute, and has an hour.
const mostConsole = 16 << 20

// read takes in what is new.
func (c *console) read() error {
	file, err := os.Open(c.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil // QEMU has not come that far
	}
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // only read from
	if _, err := file.Seek(c.offset, io.SeekStart); err != nil {
		return err
	}
	news, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	c.offset += int64(len(news))
	c.endless = c.endless || c.offset > mostConsole || sizeOf(filepath.Join(filepath.Dir(c.path), streamFile)) > mostBytes
	text := slices.Concat(c.rest, news)
	c.panicked = c.panicked || bytes.Contains(text, panicMark)
	c.astray = c.astray || bytes.Contains(text, initMark)
	c.rest = bytes.Clone(text[max(0, len(text)-len(panicMark)):])
	if c.copy != nil && len(news) > 0 {
		_, err = c.copy.Write(news)
	}
	return err
}

// sizeOf a file; 0 if it is not there.
func sizeOf(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// failure is the error of a guest that did not come to its end.
func (c *console) failure(reason Reason, cause error) *BootError {
	text, err := os.ReadFile(c.path)
	if err != nil {
		cause = errors.Join(cause, err)
	}
	lines := strings.Split(strings.TrimRight(strings.ReplaceAll(string(text), "\r", ""), "\n"), "\n")
	said := ""
	mark := panicMark
	if reason == ReasonInit {
		mark = initMark
	}
	for _, line := range lines {
		if strings.Contains(line, string(mark)) {
			said = line
			break
		}
	}
	tail := strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
	return &BootError{
		Reason:  reason,
		Said:    said[:min(len(said), tailBytes)],
		Tail:    tail[max(0, len(tail)-tailBytes):],
		Console: c.path,
		Err:     cause,
	}
}

// MostText is how much this host reads of a file that a
// guest left: it may have left gigabytes.
const MostText = 1 << 20

// ReadText reads such a file. One that is longer is an error, which names it.
func ReadText(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // only read from
	text, err := io.ReadAll(io.LimitReader(file, MostText+1))
	if err == nil && len(text) > MostText {
		err = fmt.Errorf("%q has more than the %d bytes that a guest may say", path, MostText)
	}
	return text, err
}

// ReadEnd reads the end of such a file.
func ReadEnd(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // only read from
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	text := make([]byte, min(size, MostText))
	n, err := file.ReadAt(text, size-int64(len(text)))
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return text[:n], err
}
