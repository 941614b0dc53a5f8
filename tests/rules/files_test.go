// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
)

const mostLines = 500

func TestFilesAreSmall(t *testing.T) {
	for _, name := range files(t, ".go", ".c", ".h", ".lua", ".sh", ".py") {
		text := read(t, name)
		if lines := bytes.Count(text, []byte("\n")); lines > mostLines && !generated(name, text) {
			t.Errorf("%s has %d lines, more than %d: split it by noun", name, lines, mostLines)
		}
	}
}

// The patterns are put together here so that this file is no finding itself.
var (
	unfinished = regexp.MustCompile("TO" + "DO|FIX" + "ME|not " + "implemented|un" + "implemented")
	// Generated gRPC servers embed a type of that name, and code has to.
	grpcName = regexp.MustCompile("Un" + "implemented[A-Z]|codes\\.Un" + "implemented")

	foreign = regexp.MustCompile(strings.Join([]string{
		"/wor" + "k/(main|shared|steering|[.]library|[.]mirror)",
		"/far" + "m/", "/tmp/k" + "b/", "bash_job" + "s",
		"proxy[.]golan" + "g", "sum[.]golan" + "g", "npmj" + "s[.]org", "pypi[.]or" + "g", "pythonhoste" + "d[.]org",
		"deb[.]debia" + "n[.]org", "security[.]debia" + "n[.]org", "docke" + "r[.]io", "ghc" + "r[.]io", "qua" + "y[.]io",
	}, "|"))
)

func TestNothingIsMarkedUnfinished(t *testing.T) {
	for _, name := range files(t, ".go", ".c", ".h", ".lua", ".sh", ".yml", ".yaml", ".proto", "Makefile") {
		text := read(t, name)
		if generated(name, text) {
			continue
		}
		eachLine(text, func(number int, line []byte) {
			if unfinished.Match(grpcName.ReplaceAll(line, nil)) {
				t.Errorf("%s:%d is marked unfinished: %s", name, number, bytes.TrimSpace(line))
			}
		})
	}
}

// A path of somebody's machine works nowhere else, and which registry a
// machine may use is its administrator's choice, not ours.
func TestNoMachineStandsInAFile(t *testing.T) {
	for _, name := range files(t) {
		text := read(t, name)
		if bytes.IndexByte(text, 0) >= 0 {
			continue
		}
		eachLine(text, func(number int, line []byte) {
			if found := foreign.Find(line); found != nil {
				t.Errorf("%s:%d names %q", name, number, found)
			}
		})
	}
}

func eachLine(text []byte, handle func(number int, line []byte)) {
	number := 0
	for line := range bytes.Lines(text) {
		number++
		handle(number, line)
	}
}
