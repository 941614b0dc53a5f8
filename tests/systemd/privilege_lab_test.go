// SPDX-License-Identifier: Apache-2.0

//go:build lab

package systemd

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// probe runs this program in the machine with all lines of a unit except its command, and returns the output. The unit
// is an additional one, so that the service continues; an empty name is a unit without lines, for comparison. More are
// lines of a drop-in.
func (m *machine) probe(unit, what, more string) string {
	m.t.Helper()
	return m.must(fmt.Sprintf(`set -e
unit=%q
if [ -n "$unit" ]; then cp "/usr/lib/systemd/system/$unit" /run/systemd/system/probe.service
else echo '[Service]' >/run/systemd/system/probe.service; fi
mkdir -p /run/systemd/system/probe.service.d
cat >/run/systemd/system/probe.service.d/probe.conf <<END
[Unit]
Before=
[Service]
Type=oneshot
Restart=no
ExecStart=
ExecStart=/usr/local/libexec/probe
ExecReload=
RuntimeDirectoryPreserve=yes
StandardOutput=truncate:/run/probe.out
Environment=%s=%s PROBE_MODULE=/srv/overlay.ko PROBE_OTHER=$(pidof munged)
%s
END
systemctl daemon-reload
systemctl start probe
cat /run/probe.out`, unit, asProbe, what, more))
}

// allowed lists the probe's successful attempts.
func allowed(t *testing.T, said string) (done []string) {
	t.Helper()
	answers := 0
	for line := range strings.Lines(said) {
		name, answer, found := strings.Cut(strings.TrimSpace(line), ": ")
		if !found {
			continue
		}
		answers++
		if answer == "yes" {
			done = append(done, name)
		}
	}
	if answers != len(attempts) {
		t.Fatalf("the probe answered %d of %d times:\n%s", answers, len(attempts), said)
	}
	return done
}

// attempted compares what is possible under a unit's lines with the table in this test, and checks that root without the
// lines can do all of it.
func (m *machine) attempted(t *testing.T, unit, more string, want []string) {
	t.Helper()
	if free := allowed(t, m.probe("", "attempts", "")); len(free) != len(attempts) {
		t.Errorf("root without a unit's lines can do only %q", free)
	}
	said := m.probe(unit, "attempts", more)
	t.Logf("under the lines of %s:\n%s", unit, said)
	if got := allowed(t, said); !slices.Equal(got, want) {
		t.Errorf("%s allows %q, want %q", unit, got, want)
	}
}

// folders checks where a file can be made under a unit's lines.
func (m *machine) folders(t *testing.T, unit string, want ...string) {
	t.Helper()
	free := strings.Count(m.probe("", "writable", ""), "\n")
	if free < 100 {
		t.Errorf("root without a unit's lines can write in %d folders only", free)
	}
	outside := map[string]bool{}
	for path := range strings.Lines(m.probe(unit, "writable", "")) {
		path = strings.TrimSpace(path)
		below := func(folder string) bool { return path == folder || strings.HasPrefix(path, folder+"/") }
		if !slices.ContainsFunc(want, below) {
			outside[path] = true
		}
	}
	if len(outside) > 0 {
		t.Errorf("%s can write in %q besides %q", unit, slices.Sorted(maps.Keys(outside)), want)
	}
	t.Logf("%s can write in %q, of %d folders that root can write in", unit, want, free)
}

// status checks lines of /proc/PID/status of a unit's main process.
func (m *machine) status(t *testing.T, unit string, want ...string) {
	t.Helper()
	text := m.must("cat /proc/$(systemctl show -P MainPID " + unit + ")/status")
	for _, line := range want {
		if !regexp.MustCompile(`(?m)^` + line + `$`).MatchString(text) {
			t.Errorf("%s: no %q in\n%s", unit, line, text)
		}
	}
	t.Logf("%s: %s", unit, strings.Join(regexp.MustCompile(`(?m)^(Uid|Groups|Cap\w+|NoNewPrivs|Seccomp):.*$`).FindAllString(text, -1), ", "))
}

// exposure bounds systemd's own measure of a unit, from 0 to 10, as it is where
// the unit runs.
func (m *machine) exposure(t *testing.T, unit string, most float64) {
	t.Helper()
	text := m.must("systemd-analyze security --no-pager " + unit)
	found := regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("no verdict in\n%s", text)
	}
	t.Log(found[0])
	if level, err := strconv.ParseFloat(found[1], 64); err != nil || level > most {
		t.Errorf("%s: exposure %s, at most %v was agreed on", unit, found[1], most)
	}
}

// sockets lists a unit's listening ports and sockets.
func (m *machine) sockets(t *testing.T, unit string, want ...string) {
	t.Helper()
	var got []string
	for line := range strings.Lines(m.must(`ss -tulnpxH | grep -w "pid=$(systemctl show -P MainPID ` + unit + `)" || true`)) {
		fields := strings.Fields(line)
		if fields[1] == "ESTAB" {
			continue
		}
		got = append(got, fields[0]+" "+fields[4])
	}
	slices.Sort(got)
	t.Logf("%s listens on %q", unit, got)
	if !slices.Equal(got, want) {
		t.Errorf("%s listens on %q, want %q", unit, got, want)
	}
}
