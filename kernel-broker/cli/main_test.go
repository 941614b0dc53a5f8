// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"testing"
	"time"
)

// The reader's zone is one that is not UTC's.
func TestMain(m *testing.M) {
	time.Local = time.FixedZone("CET", 60*60)
	os.Exit(m.Run())
}
