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

// ownedParameters belong to the node or to the broker: a profile that sets one
// could keep a node from coming back.
var ownedParameters = []string{
	"root", "rootflags", "rootfstype", "ro", "rw", "console", "ip", "initrd", "init",
	"rdinit", "kernelbroker.token", "crashkernel", "panic", "BOOT_IMAGE",
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
	for _, owned := range ownedParameters {
		if strings.ReplaceAll(name, "-", "_") == owned {
			return fmt.Errorf("kernel argument %q: %s belongs to the node: %w", argument, owned, ErrInvalid)
		}
	}
	return nil
}
