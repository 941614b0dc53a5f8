// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import (
	"errors"
	"testing"
)

func TestValidateCgroup(t *testing.T) {
	for name, ok := range map[string]bool{
		"s1C5M8FXCH1800": true, "s0000000000000": true,
		"": false, "job_7": false, "s1C5M8FXCH180": false, "s1C5M8FXCH18000": false, "S1C5M8FXCH1800": false,
		"s1C5M8FXCH180U": false, "s1c5m8fxch1800": false, "s../../../../x": false, "s1C5M8FXCH1800\n": false,
	} {
		if err := ValidateCgroup(name); (err == nil) != ok || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
