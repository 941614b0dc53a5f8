// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// shortID is the displayed length of a build id.
const shortID = 12

func short(id string) string { return id[:min(len(id), shortID)] }

// clock prints a time in UTC, so that readers of a log in different places agree.
func clock(t time.Time) string {
	if t.IsZero() || t.Unix() == 0 {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

func refOf(v *api.ProfileVersion) string {
	return kernelRef(v.GetKernel().GetProfile(), v.GetKernel().GetVersion())
}

// kernelRef is empty for no kernel.
func kernelRef(profile string, version uint32) string {
	return kb.Ref{Profile: profile, Version: version}.String()
}

func bytesOf(n uint64) string {
	switch {
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

// seconds prints a duration with significant digits only.
func seconds(d time.Duration) string { return fmt.Sprintf("%.2fs", d.Seconds()) }

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// requestID returns a random id of one change, so that the broker applies it once.
func requestID() string {
	var raw [16]byte
	_, _ = rand.Read(raw[:]) // it never fails
	return hex.EncodeToString(raw[:])
}
