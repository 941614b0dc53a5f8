// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"errors"
	"fmt"
	"io"
	"os"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/safeopen"
)

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
