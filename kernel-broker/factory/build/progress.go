// SPDX-License-Identifier: Apache-2.0

package build

import (
	"fmt"
	"io"
)

// Progress prints how far the work is.
type Progress struct {
	Out    io.Writer
	Kernel string
}

// Say prints one line.
func (p Progress) Say(format string, args ...any) {
	if p.Out == nil {
		return
	}
	// A closed terminal is no reason to stop a build.
	_, _ = fmt.Fprintf(p.Out, "%s: %s\n", p.Kernel, fmt.Sprintf(format, args...))
}

// Waiting returns what to call when another process does the same work.
func (p Progress) Waiting(what string) func() {
	return func() { p.Say("another process is %s: waiting for it", what) }
}
