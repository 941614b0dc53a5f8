package admission

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	kernelbroker "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory"
)

// Limits in bytes; 0 is none.
type Limits struct{ Image, Initrd int64 }

// Subject is what somebody brings.
type Subject struct {
	Image string
	// Initrd and Config are files; empty for none.
	Initrd, Config string
	Limits         Limits
}

// Finding is what was found out about a subject.
type Finding struct {
	Header
	// Release and BuildID are read from the image.
	Release, BuildID string
	// Config is where the configuration came from: "inside" or a path; empty
	// when there is none to look at.
	Config string
	// Boot is nil when the boot was not tried.
	Boot *Boot
}

// Check looks at the files. What cannot be known without a configuration is an
// error: a kernel whose agent cannot load the next one stays until somebody
// walks to the machine.
func Check(ctx context.Context, s Subject) (Finding, error) {
	if err := errors.Join(small(s.Image, s.Limits.Image), small(s.Initrd, s.Limits.Initrd)); err != nil {
		return Finding{}, err
	}
	fail := func(err error) (Finding, error) { return Finding{}, fmt.Errorf("image %q: %w", s.Image, err) }
	data, err := os.ReadFile(s.Image)
	if err != nil {
		return fail(err)
	}
	f := Finding{}
	if f.Header, err = CheckHeader(data); err != nil {
		return fail(err)
	}
	image, kernel, err := factory.OpenImage(ctx, data)
	if err != nil {
		return fail(fmt.Errorf("%w: %w", err, kernelbroker.ErrInvalid))
	}
	f.Release, f.BuildID = image.Release, image.BuildID
	if strings.Trim(f.BuildID, "0") == "" {
		return fail(fmt.Errorf("build id %q proves nothing: %w", f.BuildID, kernelbroker.ErrInvalid))
	}
	if f.Config, err = checkConfigs(kernel, s.Config); err != nil {
		return fail(err)
	}
	return f, nil
}

// checkConfigs judges by the configuration inside the kernel, or by the file.
func checkConfigs(kernel []byte, path string) (from string, err error) {
	inside, err := EmbeddedConfig(kernel)
	if err != nil {
		return "", err
	}
	if path == "" {
		if inside == nil {
			return "", fmt.Errorf("it carries no configuration (CONFIG_IKCONFIG); give the file that it was built with (--config): %w", kernelbroker.ErrInvalid)
		}
		return "inside", CheckConfig(inside)
	}
	said, err := factory.ReadConfig(path)
	if err != nil {
		return "", err
	}
	if inside == nil {
		return path, CheckConfig(said)
	}
	return "inside", errors.Join(sameConfig(said, inside), CheckConfig(inside))
}

// small refuses what is no regular file, or one that is too large.
func small(path string, limit int64) error {
	if path == "" {
		return nil
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is no regular file: %w", path, kernelbroker.ErrInvalid)
	case info.Size() == 0 || limit > 0 && info.Size() > limit:
		return fmt.Errorf("%s has %d bytes, 1 to %d are allowed: %w", path, info.Size(), limit, kernelbroker.ErrInvalid)
	}
	return nil
}
