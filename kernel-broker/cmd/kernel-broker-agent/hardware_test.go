// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/inventory"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/slim"
)

// The factory reads what nodes print.
func TestFactoryReadsHardwareReports(t *testing.T) {
	one, err := agentctl("hardware", "--node", "n1")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(one, "\n") != 1 {
		t.Errorf("a report has more than one line, and two may mix: %q", one)
	}
	other, err := agentctl("hardware", "--node", "n0")
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := slim.ReadNodes(strings.NewReader(one + other))
	if err != nil {
		t.Fatal(err)
	}
	seen, err := inventory.ReadHardware("/proc", "/sys", "n1")
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes) != 2 || nodes[0].Name != "n0" || !reflect.DeepEqual(nodes[1], seen) {
		t.Errorf("printed %+v, read %+v", seen, nodes)
	}
}

func TestHardwareUsage(t *testing.T) {
	var usage usageError
	if _, err := agentctl("hardware", "n1"); !errors.As(err, &usage) {
		t.Errorf("an argument: %v", err)
	}
	if _, err := agentctl("hardware", "--sys", t.TempDir()); err == nil || errors.As(err, &usage) {
		t.Errorf("no sysfs: %v", err)
	}
}
