// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import (
	"errors"
	"strings"
	"testing"
)

func TestCheckHonoured(t *testing.T) {
	slim := func(symbol string) bool {
		return symbol == "TRANSPARENT_HUGEPAGE" || symbol == "NO_HZ_IDLE" || symbol == "SMP"
	}
	for argument, lacks := range map[string]string{
		"nohz_full=1-3": "CONFIG_NO_HZ_FULL", "nohz-full=1-3": "CONFIG_NO_HZ_FULL", "isolcpus=1": "CONFIG_CPU_ISOLATION", "rcu_nocbs=1": "CONFIG_RCU_NOCB_CPU",
		"transparent_hugepage=always": "", "nohz=on": "", "irqaffinity=0": "", "quiet": "", "mitigations=off": "", "unknown.to=us": "",
	} {
		err := CheckHonoured([]string{argument}, slim)
		if (lacks == "") != (err == nil) || err != nil && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), lacks) || !strings.Contains(err.Error(), argument)) {
			t.Errorf("%s: %v, want %q", argument, err, lacks)
		}
	}
	err := CheckHonoured([]string{"nohz_full=1", "isolcpus=1"}, slim)
	if err == nil || !strings.Contains(err.Error(), "NO_HZ_FULL") || !strings.Contains(err.Error(), "CPU_ISOLATION") {
		t.Errorf("two: %v", err)
	}
	if err := CheckHonoured([]string{"nohz_full=1"}, func(string) bool { return true }); err != nil {
		t.Errorf("a kernel with all: %v", err)
	}
}

// Lookups use plain names, so the table must contain only those.
func TestHonouredByKeysArePlain(t *testing.T) {
	for name, symbols := range honouredBy {
		if plainParameter(name) != name || strings.Contains(name, "=") || len(symbols) == 0 {
			t.Errorf("%q: %q", name, symbols)
		}
		for _, symbol := range symbols {
			if strings.HasPrefix(symbol, "CONFIG_") || symbol != strings.ToUpper(symbol) {
				t.Errorf("%q: symbol %q", name, symbol)
			}
		}
	}
}
