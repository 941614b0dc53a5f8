// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Mount is one line of /proc/self/mountinfo, as far as it matters here.
type Mount struct {
	Device     string // major:minor
	Point      string
	Filesystem string
	Source     string
	Options    string // of the file system
}

// parseMounts reads /proc/self/mountinfo.
func parseMounts(text string) ([]Mount, error) {
	var mounts []Mount
	for line := range strings.Lines(text) {
		before, after, has := strings.Cut(strings.TrimRight(line, "\n"), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !has || len(left) < 6 || len(right) < 2 {
			return nil, fmt.Errorf("mount %q: %w", line, kb.ErrInvalid)
		}
		m := Mount{Device: left[2], Point: unescape(left[4]), Filesystem: right[0], Source: unescape(right[1])}
		if len(right) > 2 {
			m.Options = right[2]
		}
		mounts = append(mounts, m)
	}
	return mounts, nil
}

// unescape undoes the kernel's octal escapes of blanks and backslashes.
func unescape(text string) string {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+3 < len(text) {
			if n, err := strconv.ParseUint(text[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		out.WriteByte(text[i])
	}
	return out.String()
}

// at returns the mount of a path. Of stacked mounts the last one is visible.
func at(mounts []Mount, where string) (Mount, bool) {
	where = path.Clean(where)
	best, found := Mount{}, false
	for _, m := range mounts {
		inside := m.Point == "/" || where == m.Point || strings.HasPrefix(where, m.Point+"/")
		if inside && (!found || len(m.Point) >= len(best.Point)) {
			best, found = m, true
		}
	}
	return best, found
}

// lower returns the mount of an overlay's lowest layer. The layer may be hidden: mounted before the overlay became the
// root.
func lower(mounts []Mount, overlay Mount) (Mount, bool) {
	for option := range strings.SplitSeq(overlay.Options, ",") {
		if layers, ok := strings.CutPrefix(option, "lowerdir="); ok {
			list := strings.Split(layers, ":")
			m, found := at(mounts, unescape(list[len(list)-1]))
			return m, found && m != overlay
		}
	}
	return Mount{}, false
}
