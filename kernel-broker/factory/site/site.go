// SPDX-License-Identifier: Apache-2.0

// Package site is what a site asks of the kernels that it lets its jobs have:
// one strict file on the host where kernelctl runs, that only root should be
// able to write.
//
// The idea: what a kernel may not do is settled before it is built, by the
// cluster's administrator, and not by the recipe. Without a file the answer is
// the careful one.
package site

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/safeopen"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/strictyaml"
)

// DefaultPath of the file.
const DefaultPath = "/etc/kernel-broker/factory.yaml"

// Mitigations is what kernels do about the processor's flaws.
type Mitigations string

// The policies.
const (
	// Stock: what the distribution's own kernel does.
	Stock Mitigations = "stock"
	// Any: what recipe and arguments say.
	Any Mitigations = "any"
)

// Loss is what a kernel's configuration may give up to be faster.
type Loss string

// The losses.
const (
	// Security: checks that detect a kernel's memory errors.
	Security Loss = "security"
	// Limits: what keeps a job within its memory, processors and devices.
	Limits Loss = "limits"
	// Accounting: figures of jobs that Slurm and tools read.
	Accounting Loss = "accounting"
	// Diagnosis: what tells why a node failed or is slow.
	Diagnosis Loss = "diagnosis"
	// Hardware: machines of some kinds or sizes.
	Hardware Loss = "hardware"
)

// Losses are all of them.
var Losses = []Loss{Security, Limits, Accounting, Diagnosis, Hardware}

// FormatLosses for messages.
func FormatLosses() string { return strings.Trim(fmt.Sprint(Losses), "[]") }

type Site struct {
	Mitigations Mitigations `yaml:"mitigations"`
	// MayGiveUp is what kernelctl kernel tune may trade for speed.
	MayGiveUp []Loss `yaml:"may_give_up"`
}

// Default is what holds without a file.
func Default() Site { return Site{Mitigations: Stock} }

// maxBytes of the file.
const maxBytes = 1 << 20

// Load reads path. Only a missing file at DefaultPath is the same as none: who
// names a file means it.
func Load(path string) (Site, error) {
	text, err := safeopen.Read(path, maxBytes, nil)
	if errors.Is(err, fs.ErrNotExist) && path == DefaultPath {
		return Default(), nil
	}
	if err != nil {
		return Site{}, fmt.Errorf("site's policy: %w", err)
	}
	return Parse(path, text)
}

// Parse reads the text of a file; an unknown key or value is an error.
func Parse(name string, text []byte) (Site, error) {
	s := Default()
	if err := strictyaml.Decode(name, text, &s); err != nil {
		return Site{}, fmt.Errorf("%w: %w", err, kb.ErrInvalid)
	}
	if s.Mitigations != Stock && s.Mitigations != Any {
		return Site{}, fmt.Errorf("%s: line %d: mitigations %q is neither %s nor %s: %w",
			name, strictyaml.LineOf(text, "mitigations"), s.Mitigations, Stock, Any, kb.ErrInvalid)
	}
	for i, loss := range s.MayGiveUp {
		if !slices.Contains(Losses, loss) {
			return Site{}, fmt.Errorf("%s: line %d: may_give_up %q is none of %s: %w",
				name, strictyaml.LineOf(text, "may_give_up", i), loss, FormatLosses(), kb.ErrInvalid)
		}
	}
	return s, nil
}

// The kernel's arguments that change what it does about flaws, and their values
// that do not do less. Documentation/admin-guide/kernel-parameters.txt of Linux
// has them all.
var (
	arguments = []string{
		"mitigations", "pti", "nopti", "nospectre_v1", "nospectre_v2", "spectre_v2", "spectre_v2_user", "spectre_bhi",
		"nospec_store_bypass_disable", "spec_store_bypass_disable", "l1tf", "mds", "tsx_async_abort", "mmio_stale_data", "srbds",
		"retbleed", "spec_rstack_overflow", "gather_data_sampling", "reg_file_data_sampling", "indirect_target_selection",
		"tsa", "vmscape", "attack_vector_mitigations",
	}
	noLess = []string{"auto", "auto,nosmt", "on", "force", "full", "full,nosmt", "full,force", "flush", "flush,nosmt"}
)

// Allow refuses arguments that weaken what the stock kernel does, unless the
// site leaves that to profiles.
func (s Site) Allow(list []string) error {
	if s.Mitigations == Any {
		return nil
	}
	var weaker []string
	for _, one := range list {
		name, value, has := strings.Cut(one, "=")
		if has && slices.Contains(noLess, value) && !strings.HasPrefix(name, "no") {
			continue
		}
		// Linux takes a dash for an underscore.
		if slices.Contains(arguments, strings.ReplaceAll(name, "-", "_")) {
			weaker = append(weaker, one)
		}
	}
	if weaker == nil {
		return nil
	}
	return fmt.Errorf("%s: profiles keep the stock kernel's mitigations, unless %s says \"mitigations: any\": %w",
		strings.Join(weaker, " "), DefaultPath, kb.ErrFailedPrecondition)
}
