// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
)

// needed is what a kernel must have built in, with what goes wrong without it.
var needed = []struct{ symbol, why string }{
	{"64BIT", "nodes are x86_64"},
	{"RELOCATABLE", "kexec loads it beside the running kernel"},
	{"KEXEC", "the node could not leave this kernel"},
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
		if config[n.symbol] != "y" {
			wrong = append(wrong, fmt.Errorf("CONFIG_%s is not built in: %s", n.symbol, n.why))
		}
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

// maxConfig is far above what a distribution's configuration takes.
const maxConfig = 4 << 20

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
	reader, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("configuration inside the kernel: %w: %w", err, kb.ErrInvalid)
	}
	text, err := io.ReadAll(io.LimitReader(reader, maxConfig+1))
	if err == nil && len(text) > maxConfig {
		err = fmt.Errorf("more than %d bytes", maxConfig)
	}
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
