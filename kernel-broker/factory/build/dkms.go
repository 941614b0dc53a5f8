// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
)

//go:embed dkms.sh
var dkmsScript string

// dkms is what a dkms.conf says for one kernel. The program dkms itself is not used: it keeps its state, and a key of its own,
// for the whole machine, builds for the kernel that runs where it is in doubt, and its end says little (ADR 0045).
type dkms struct {
	Name, Version string
	// Before is a command to run first, Make the one that builds.
	Before, Make string
	Patches      []string
	// Modules are paths below the source without .ko.
	Modules []string
}

// readDKMS has bash read the file in dir, which is a script. obj is the folder of the kernel's objects, tree the one in which
// dkms would build, in NAME/VERSION/build. Before there is a kernel its release may be empty and its configuration nil.
func readDKMS(ctx context.Context, dir, tree, release, obj string, config kconfig.Config) (dkms, error) {
	said, err := Output(ctx, dir, "bash", "-c", dkmsScript, "dkms.conf", release, obj, tree)
	if err != nil {
		return dkms{}, fmt.Errorf("dkms.conf: %w", err)
	}
	d, err := parseDKMS(said, release, config)
	if err != nil {
		return dkms{}, fmt.Errorf("dkms.conf: %w", err)
	}
	return d, nil
}

func parseDKMS(said, release string, config kconfig.Config) (dkms, error) {
	var d dkms
	words := strings.Split(strings.TrimSuffix(said, "\x00"), "\x00")
	if len(words)%2 != 0 {
		return d, fmt.Errorf("%d words, an even number is expected", len(words))
	}
	for i := 0; i < len(words); i += 2 {
		key, value := words[i], words[i+1]
		switch key {
		case "name":
			d.Name = value
		case "version":
			d.Version = value
		case "before":
			d.Before = value
		case "make":
			d.Make = value
		case "patch":
			d.Patches = append(d.Patches, value)
		case "module":
			d.Modules = append(d.Modules, strings.TrimPrefix(value, "/"))
		case "kernels", "least", "most", "architectures", "options", "depends":
			if err := excluded(key, value, release, config); err != nil {
				return d, err
			}
		default:
			return d, fmt.Errorf("word %q is not expected", key)
		}
	}
	if d.Name == "" || d.Version == "" {
		return d, errors.New("no PACKAGE_NAME or PACKAGE_VERSION")
	}
	if len(d.Modules) == 0 {
		d.Modules = []string{d.Name} // dkms's own default
	}
	for _, module := range d.Modules {
		if !filepath.IsLocal(module) || path.Base(module) == "." {
			return d, fmt.Errorf("BUILT_MODULE_NAME or BUILT_MODULE_LOCATION: %q is not below the source", module)
		}
	}
	return d, nil
}

// excluded is why a package is not for this kernel.
func excluded(key, value, release string, config kconfig.Config) error {
	if value == "" || release == "" && slices.Contains([]string{"kernels", "least", "most"}, key) || config == nil && key == "options" {
		return nil
	}
	switch key {
	case "kernels":
		match, err := regexp.MatchString(value, release)
		if err == nil && !match {
			err = fmt.Errorf("BUILD_EXCLUSIVE_KERNEL=%s: it is not for kernel %s", value, release)
		}
		return err
	case "least":
		if slices.Compare(numbers(release), numbers(value)) < 0 {
			return fmt.Errorf("BUILD_EXCLUSIVE_KERNEL_MIN=%s: it is not for kernel %s", value, release)
		}
		return nil
	case "most":
		if slices.Compare(numbers(release), numbers(value)) > 0 {
			return fmt.Errorf("BUILD_EXCLUSIVE_KERNEL_MAX=%s: it is not for kernel %s", value, release)
		}
		return nil
	case "architectures":
		match, err := regexp.MatchString(value, "x86_64")
		if err == nil && !match {
			err = fmt.Errorf("BUILD_EXCLUSIVE_ARCH=%s: it is not for x86_64", value)
		}
		return err
	case "options":
		for _, option := range strings.Fields(value) {
			symbol := strings.TrimPrefix(strings.TrimPrefix(option, "!"), "CONFIG_")
			if config.On(symbol) == strings.HasPrefix(option, "!") {
				return fmt.Errorf("BUILD_EXCLUSIVE_CONFIG=%s: the kernel's configuration does not fit; add a fragment that sets it", option)
			}
		}
		return nil
	}
	return fmt.Errorf("BUILD_DEPENDS=%s: packages that need others' modules are not supported", value)
}

var leading = regexp.MustCompile(`^[0-9]+(\.[0-9]+)*`)

// numbers are those that a release begins with.
func numbers(release string) []int {
	var all []int
	for text := range strings.SplitSeq(leading.FindString(release), ".") {
		n, _ := strconv.Atoi(text) // of digits
		all = append(all, n)
	}
	return all
}
