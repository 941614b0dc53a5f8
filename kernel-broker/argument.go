// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import (
	"fmt"
	"strings"
)

// The kernel command line holds 2048 bytes on x86; the node's own arguments
// and the token want their share.
const (
	maxArguments      = 64
	maxArgumentLength = 256
	maxArgumentsTotal = 1024
)

// Parameters are names of kernel parameters; a name that ends in * matches every name with that prefix.
type Parameters []string

// Has reports whether the argument sets one of the parameters. Dashes and
// underscores are the same to the kernel, and so they are here.
func (p Parameters) Has(argument string) bool {
	name, _, _ := strings.Cut(argument, "=")
	name = plainParameter(name)
	for _, pattern := range p {
		prefix, wild := strings.CutSuffix(plainParameter(pattern), "*")
		if name == prefix || wild && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

func plainParameter(name string) string { return strings.ReplaceAll(name, "-", "_") }

// NodeParameters belong to the node: its agent copies them from the running command line to the next one. A profile must
// not set them: the node might not come back, or would keep the value on the next boot. An agent may be configured to
// keep more parameters, which it then refuses in profiles.
func NodeParameters() Parameters {
	return Parameters{
		"root", "rootflags", "rootfstype", "rootwait", "rootdelay", "ro", "rw", "init", "rdinit", "boot", "nfsroot", "nfsopts",
		"netroot", "ip", "nameserver", "bond", "bridge", "team", "vlan", "net.ifnames", "biosdevname", "ifname", "BOOTIF",
		"rd.*", "systemd.unified_cgroup_hierarchy", "console", "earlycon", "panic", "crashkernel", "no_timer_check",
		"tsc_early_khz", "lockdown", "kb.*",
	}
}

// owners of parameters that no profile may set.
var owners = []struct {
	owner      string
	parameters Parameters
}{
	{"the node, which keeps its own value on every boot", NodeParameters()},
	{"the node's boot loader", Parameters{"initrd", "BOOT_IMAGE"}},
	{"the broker, which uses it to prove a boot", Parameters{TokenParameter, BeginParameter, ModulesParameter}},
	{"the node's agent, which composes it for system cores", Parameters{SystemCPUsParameter}},
}

// ValidateArguments accepts the kernel arguments that a profile may ask for.
func ValidateArguments(arguments []string) error {
	if len(arguments) > maxArguments {
		return fmt.Errorf("%d kernel arguments, at most %d are allowed: %w", len(arguments), maxArguments, ErrInvalid)
	}
	total := 0
	for _, argument := range arguments {
		total += len(argument) + 1
		if err := validateArgument(argument); err != nil {
			return err
		}
	}
	if total > maxArgumentsTotal {
		return fmt.Errorf("kernel arguments have %d bytes, at most %d are allowed: %w", total, maxArgumentsTotal, ErrInvalid)
	}
	return nil
}

func validateArgument(argument string) error {
	if argument == "" || len(argument) > maxArgumentLength {
		return fmt.Errorf("kernel argument %q has a wrong length: %w", argument, ErrInvalid)
	}
	for i := range len(argument) {
		c := argument[i]
		if c <= ' ' || c > '~' || strings.IndexByte("\"'\\`$;&|<>", c) >= 0 {
			return fmt.Errorf("kernel argument %q: character %q: %w", argument, c, ErrInvalid)
		}
	}
	name, _, _ := strings.Cut(argument, "=")
	if name == "" || strings.HasPrefix(name, "-") {
		return fmt.Errorf("kernel argument %q has no parameter name: %w", argument, ErrInvalid)
	}
	for _, o := range owners {
		if o.parameters.Has(argument) {
			return fmt.Errorf("kernel argument %q: %s belongs to %s: %w", argument, name, o.owner, ErrInvalid)
		}
	}
	return nil
}
