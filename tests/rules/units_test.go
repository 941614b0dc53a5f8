// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const units = "packaging/systemd/"

// unitExposure is how open a unit may be, in systemd's own measure from 0 to 10:
// less than now is welcome, more wants a reason.
var unitExposure = map[string]float64{"kernel-broker.service": 1.4, "kernel-broker-agent.service": 5.0}

// staged copies a unit with a program that is on every machine in it, since
// systemd looks whether there is one.
func staged(t *testing.T, name string) string {
	t.Helper()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not on this machine (package systemd)")
	}
	text := regexp.MustCompile(`(?m)^ExecStart=.*$`).ReplaceAll(read(t, units+name), []byte("ExecStart=/bin/true"))
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestUnitsAreValid(t *testing.T) {
	for name := range unitExposure {
		out, err := exec.Command("systemd-analyze", "verify", "--man=no", staged(t, name)).CombinedOutput()
		if err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// What restarts always is not given up after some quick failures: a node whose disk was full gets its agent back.
func TestUnitsAreNotGivenUp(t *testing.T) {
	for name := range unitExposure {
		head, service, found := strings.Cut(string(read(t, units+name)), "\n[Service]\n")
		if !found || !strings.Contains(head, "\nStartLimitIntervalSec=0\n") || !strings.Contains(service, "\nRestart=always\n") {
			t.Errorf("%s: want StartLimitIntervalSec=0 in [Unit] and Restart=always in [Service]", name)
		}
	}
}

func TestUnitsAreClosed(t *testing.T) {
	for name, most := range unitExposure {
		out, err := exec.Command("systemd-analyze", "security", "--offline=yes", "--no-pager", staged(t, name)).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		found := regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`).FindSubmatch(out)
		if found == nil {
			t.Fatalf("%s: no verdict in\n%s", name, out)
		}
		if level, err := strconv.ParseFloat(string(found[1]), 64); err != nil || level > most {
			t.Errorf("%s: exposure %s, at most %v was agreed on\n%s", name, found[1], most, out)
		}
	}
}

// Where the agent starts slurmd, a drop-in lifts from jobs whatever closes the
// agent. The page for administrators has the same.
func TestDropInLiftsAllThatCloses(t *testing.T) {
	lift := string(read(t, "ansible/roles/agent/files/slurmd-child.conf"))
	closing := regexp.MustCompile(`(?m)^((?:Capability|SystemCall(?:Filter|Arch)|Protect|Private|Restrict|ReadOnly|ReadWrite|Inaccessible|NoNewPriv|LockPers|Memory(?:Deny|Max)|DevicePol|Keyring)\w*)=`)
	found := closing.FindAllStringSubmatch(string(read(t, units+"kernel-broker-agent.service")), -1)
	if len(found) < 10 {
		t.Fatalf("found only %q in the unit", found)
	}
	for _, line := range found {
		if !strings.Contains(lift, "\n"+line[1]+"=") {
			t.Errorf("the unit has %s=, and no line of the drop-in lifts it", line[1])
		}
	}
	_, body, _ := strings.Cut(lift, "[Service]\n")
	if page := string(read(t, "docs/ops/trust.md")); body == "" || !strings.Contains(page, body) {
		t.Error("docs/ops/trust.md has another drop-in for a slurmd that the agent starts")
	}
}

// The agent's unit says what each of root's powers is for.
func TestEachPowerHasAReason(t *testing.T) {
	text := string(read(t, units+"kernel-broker-agent.service"))
	comments := regexp.MustCompile(`(?m)^#.*$`).FindAllString(text, -1)
	for _, line := range regexp.MustCompile(`(?m)^CapabilityBoundingSet=(.*)$`).FindAllStringSubmatch(text, -1) {
		for _, power := range strings.Fields(line[1]) {
			word := regexp.MustCompile(`\b` + strings.TrimPrefix(power, "CAP_") + `\b`)
			if !word.MatchString(strings.Join(comments, "\n")) {
				t.Errorf("%s is kept without a reason", power)
			}
		}
	}
}
