// SPDX-License-Identifier: Apache-2.0

// Package admission checks a given kernel before anything of
// it is stored: is it an image that kexec can boot, is it what its papers say,
// has it what the node's agent needs to prove it and to leave it again, and does
// it boot.
//
// What an image says of itself is read from its header, from the notes of the
// kernel inside and from the configuration that it may carry; what it can do is
// shown by a guest that boots it, looks at its drivers, and loads it once more
// with kexec. What the image itself shows takes precedence over its description.
package admission

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/safeopen"
)

// Subject is a given kernel, in files that do not change meanwhile: see
// Take.
type Subject struct {
	Image string
	// Config is a file; empty for none.
	Config string
	// Name is what errors call the image; empty for its path.
	Name string
	// Arguments that it shall be booted with.
	Arguments []string
	// Modules is an archive whose modules the boot has to load; empty for none.
	Modules string
}

// Finding is what was found out about a subject.
type Finding struct {
	// Release, BuildID and CommandLineBytes are read from the image.
	Release, BuildID string
	CommandLineBytes int
	// Config is where the configuration came from: "inside" or a path; empty
	// when there is none to look at.
	Config string
	// Modules are those of the subject.
	Modules string
	// Boot is nil when the boot was not tried.
	Boot *Boot
}

// Check looks at the files. What cannot be known without a configuration is an
// error: a kernel whose agent cannot load the next one stays until an
// administrator resets the machine.
func Check(ctx context.Context, s Subject) (Finding, error) {
	name := cmp.Or(s.Name, s.Image)
	fail := func(err error) (Finding, error) { return Finding{}, fmt.Errorf("image %q: %w", name, err) }
	data, err := os.ReadFile(s.Image)
	if err != nil {
		return fail(err)
	}
	f := Finding{Modules: s.Modules}
	if err := CheckHeader(data); err != nil {
		return fail(err)
	}
	image, kernel, err := build.OpenImage(ctx, data)
	if err != nil {
		return fail(fmt.Errorf("%w: %w", err, kb.ErrInvalid))
	}
	f.Release, f.BuildID, f.CommandLineBytes = image.Release, image.BuildID, image.CommandLineBytes
	if strings.Trim(f.BuildID, "0") == "" {
		return fail(fmt.Errorf("build id %q proves nothing: %w", f.BuildID, kb.ErrInvalid))
	}
	if f.Config, err = checkConfigs(kernel, s, image.Release); err != nil {
		return fail(err)
	}
	return f, nil
}

// checkConfigs judges by the configuration inside the kernel, or by the file.
func checkConfigs(kernel []byte, s Subject, release string) (from string, err error) {
	inside, err := EmbeddedConfig(kernel)
	if err != nil {
		return "", err
	}
	check := func(config kconfig.Config) error {
		return errors.Join(CheckConfig(config), kb.CheckHonoured(s.Arguments, config.On))
	}
	if s.Config == "" {
		if inside == nil {
			return "", fmt.Errorf("it carries no configuration (CONFIG_IKCONFIG); give the file that it was built with (--config-file): %w", kb.ErrInvalid)
		}
		return "inside", check(inside)
	}
	text, err := kconfig.ReadText(s.Config)
	if err != nil {
		return "", err
	}
	said := kconfig.ParseConfig(text)
	if err := ofRelease(text, said, release); err != nil {
		return "", err
	}
	if inside == nil {
		return s.Config, check(said)
	}
	return "inside", errors.Join(sameConfig(said, inside), check(inside))
}

// ConfigOf is the configuration inside an image or, where it carries none, in the file at path; nil where neither can be had.
func ConfigOf(ctx context.Context, image, path string) (kconfig.Config, error) {
	data, err := os.ReadFile(image)
	if err != nil {
		return nil, err
	}
	if _, kernel, err := build.OpenImage(ctx, data); err == nil {
		if inside, err := EmbeddedConfig(kernel); err != nil || inside != nil {
			return inside, err
		}
	}
	config, err := kconfig.ReadConfig(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return config, err
}

// Places in the setup header, from the x86 boot protocol.
const (
	atBootFlag    = 0x1fe // 0xAA55
	atMagic       = 0x202 // HdrS
	atVersion     = 0x206
	atLoadFlags   = 0x211
	atRelocatable = 0x234
	atXLoadFlags  = 0x236
	atCmdlineSize = 0x238
	atInitSize    = 0x260
	headerEnd     = 0x264

	bootFlag      = 0xaa55
	leastProtocol = 0x020c // 2.12: flags for the 64-bit entry
	loadedHigh    = 0x01   // of loadflags: a bzImage, not a zImage
	kernel64      = 0x01   // of xloadflags
	// leastCmdline is what the agent's command lines may need: the node's own
	// arguments, the profile's and the token.
	leastCmdline = 2047
	// mostMemory that a kernel may ask for to unpack itself.
	mostMemory = 1 << 30
)

// CheckHeader refuses what kexec-tools cannot boot as a 64-bit bzImage, and
// what the agent could not use.
func CheckHeader(image []byte) error {
	little := binary.LittleEndian
	if len(image) < headerEnd || little.Uint16(image[atBootFlag:]) != bootFlag || string(image[atMagic:atMagic+4]) != "HdrS" {
		return fmt.Errorf("no bzImage: %s: %w", build.WhatIs(image), kb.ErrInvalid)
	}
	protocol, memory := little.Uint16(image[atVersion:]), little.Uint32(image[atInitSize:])
	wrong := ""
	switch length := little.Uint32(image[atCmdlineSize:]); {
	case protocol < leastProtocol:
		wrong = fmt.Sprintf("boot protocol %d.%02d is older than 2.12", protocol>>8, protocol&0xff)
	case image[atLoadFlags]&loadedHigh == 0:
		wrong = "a zImage, which is loaded low; a bzImage is needed"
	case image[atRelocatable] == 0:
		wrong = "not relocatable (CONFIG_RELOCATABLE): kexec has to load it beside the running kernel"
	case little.Uint16(image[atXLoadFlags:])&kernel64 == 0:
		wrong = "no 64-bit entry: not an x86_64 kernel"
	case length < leastCmdline:
		wrong = fmt.Sprintf("takes a command line of %d bytes, %d are needed", length, leastCmdline)
	case memory > mostMemory:
		wrong = fmt.Sprintf("asks for %d bytes to unpack itself, at most %d", memory, mostMemory)
	default:
		return nil
	}
	return fmt.Errorf("%s: %w", wrong, kb.ErrInvalid)
}

// needed is what a kernel must have built in, with what goes wrong without it.
var needed = []struct{ symbol, why string }{
	{"64BIT", "nodes are x86_64"},
	{"RELOCATABLE", "kexec loads it beside the running kernel"},
	{"KEXEC", "the node could not leave this kernel, nor by CONFIG_KEXEC_FILE"},
	{"KEXEC_CORE", "the node could not leave this kernel"},
	{"BINFMT_ELF", "nothing would run"},
	{"PROC_FS", "the agent reads the boot id and the command line"},
	{"SYSFS", "the agent reads the build id, the hardware and whether a kernel is loaded"},
	{"SHMEM", "the agent loads the next kernel from sealed memory"},
	{"MEMFD_CREATE", "the agent loads the next kernel from sealed memory"},
	{"TMPFS", "/run, where the node's proof stands"},
	{"FUTEX", "Go's runtime"},
	{"EPOLL", "Go's runtime"},
	{"POSIX_TIMERS", "Go's runtime"},
	{"UNIX", "the node's hooks reach the agent"},
	{"INET", "the agent reaches the broker"},
}

// forbidden is what a kernel must not have.
var forbidden = []struct{ symbol, why string }{
	{"CMDLINE_OVERRIDE", "the one-time token on the command line would be lost, so that no boot could be proven"},
}

// CheckConfig refuses a configuration that lacks what the agent needs; it names
// everything at once.
func CheckConfig(config kconfig.Config) error {
	var wrong []error
	for _, n := range needed {
		if config[n.symbol] == "y" || n.symbol == "KEXEC" && config["KEXEC_FILE"] == "y" {
			continue
		}
		wrong = append(wrong, fmt.Errorf("CONFIG_%s is not built in: %s", n.symbol, n.why))
	}
	for _, f := range forbidden {
		if config[f.symbol] == "y" {
			wrong = append(wrong, fmt.Errorf("CONFIG_%s is set: %s", f.symbol, f.why))
		}
	}
	if wrong != nil {
		return fmt.Errorf("configuration: %w: %w", errors.Join(wrong...), kb.ErrInvalid)
	}
	return nil
}

// Marks around the configuration that CONFIG_IKCONFIG puts into a kernel.
var configBegin, configEnd = []byte("IKCFG_ST"), []byte("IKCFG_ED")

// EmbeddedConfig finds the configuration inside an unpacked kernel; nil when it
// carries none.
func EmbeddedConfig(kernel []byte) (kconfig.Config, error) {
	_, rest, found := bytes.Cut(kernel, configBegin)
	if !found {
		return nil, nil
	}
	packed, _, found := bytes.Cut(rest, configEnd)
	if !found {
		return nil, fmt.Errorf("configuration inside the kernel has no end: %w", kb.ErrInvalid)
	}
	text, err := kconfig.Gunzip(packed)
	if err != nil {
		return nil, fmt.Errorf("configuration inside the kernel: %w: %w", err, kb.ErrInvalid)
	}
	return kconfig.ParseConfig(string(text)), nil
}

// sameConfig compares a given configuration with the one inside the kernel,
// where both speak of a symbol that matters here.
func sameConfig(said, inside kconfig.Config) error {
	var differ []string
	for _, n := range needed {
		if said[n.symbol] != inside[n.symbol] {
			differ = append(differ, "CONFIG_"+n.symbol)
		}
	}
	if differ != nil {
		return fmt.Errorf("the configuration given is not the one inside the kernel: %s: %w", strings.Join(differ, ", "), kb.ErrInvalid)
	}
	return nil
}

// versionParts are the first two or three numbers of a version or a release.
var versionParts = regexp.MustCompile(`^([0-9]+\.[0-9]+)(?:\.([0-9]+))?`)

// ofRelease refuses a configuration that says of itself that it is of another
// kernel. A distribution calls each point release of a series x.y.0, and has one
// configuration for each flavour, whose salt is the release.
func ofRelease(text string, config kconfig.Config, release string) error {
	value := func(symbol string) string { return strings.Trim(config[symbol], `"`) }
	architecture, version := kconfig.Header(text)
	says, is := versionParts.FindStringSubmatch(version), versionParts.FindStringSubmatch(release)
	other := ""
	switch salt, local := value("BUILD_SALT"), value("LOCALVERSION"); {
	case architecture != "" && !slices.Contains([]string{"x86", "x86_64", "i386"}, architecture):
		other = "architecture " + architecture
	case says != nil && is != nil && (says[1] != is[1] || says[2] != is[2] && strings.Trim(is[2], "0") != ""):
		other = "Linux " + version
	case versionParts.MatchString(salt) && salt != release:
		other = "release " + salt + " (CONFIG_BUILD_SALT)"
	case !strings.Contains(release, local):
		other = "a kernel with CONFIG_LOCALVERSION " + local
	default:
		return nil
	}
	return fmt.Errorf("the configuration given is of %s, and the image is release %s: give the file that it was built with (/boot/config-%s): %w", other, release, release, kb.ErrInvalid)
}

// Take copies a given file to a private place,
// for all that is done with it afterwards: what is checked, booted, signed and
// stored are then the same bytes, whatever becomes of the file. It holds 1 to
// limit bytes. What is no regular file is refused; a pipe would wait for ever.
func Take(from, to string, limit int64) (err error) {
	source, _, err := safeopen.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }() // only read from
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	size, err := io.Copy(target, io.LimitReader(source, limit+1))
	switch {
	case err != nil:
		return fmt.Errorf("copy of %s: %w", from, err)
	case size > limit:
		return fmt.Errorf("%s has more than %d bytes: %w", from, limit, kb.ErrInvalid)
	case size == 0:
		return fmt.Errorf("%s has 0 bytes: %w", from, kb.ErrInvalid)
	}
	return nil
}
