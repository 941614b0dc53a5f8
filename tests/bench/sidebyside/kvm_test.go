// SPDX-License-Identifier: Apache-2.0

package sidebyside

import (
	"path/filepath"
	"strings"
	"testing"
)

// A probe that fails says why.
func TestProbeSaysWhy(t *testing.T) {
	err := probeKVM(t.Context(), filepath.Join(t.TempDir(), "no-kernel"), t.TempDir())
	if err == nil || !strings.HasPrefix(err.Error(), "kvm: ") && !strings.Contains(err.Error(), "no-kernel") {
		t.Errorf("error is %v", err)
	}
}
