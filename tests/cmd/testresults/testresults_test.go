// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestGoResults(t *testing.T) {
	cases := map[string]struct {
		stream string
		want   []result
	}{
		"leaves count, parents do not": {
			`{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestA/one"}
{"Action":"run","Package":"p","Test":"TestA/two"}
{"Action":"pass","Package":"p","Test":"TestA/one"}
{"Action":"fail","Package":"p","Test":"TestA/two"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"fail","Package":"p"}`,
			[]result{{where: "p", name: "TestA/one"}, {where: "p", name: "TestA/two", outcome: failed}},
		},
		"a parent that failed by itself counts": {
			`{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestA/one"}
{"Action":"pass","Package":"p","Test":"TestA/one"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"fail","Package":"p"}`,
			[]result{{where: "p", name: "TestA", outcome: failed}, {where: "p", name: "TestA/one"}},
		},
		"a skip keeps its reason": {
			`{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:3: no QEMU\n"}
{"Action":"skip","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p"}`,
			[]result{{where: "p", name: "TestA", outcome: skipped, reason: "a_test.go:3: no QEMU"}},
		},
		"a test that never ended failed": {
			`{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"fail","Package":"p"}`,
			[]result{{where: "p", name: "TestA", outcome: failed, reason: "did not end"}},
		},
		"a package that did not compile failed once": {
			`{"ImportPath":"p","Action":"build-output","Output":"x.go:1: bad\n"}
{"Action":"start","Package":"p"}
{"Action":"fail","Package":"p","FailedBuild":"p"}`,
			[]result{{where: "p", outcome: failed}},
		},
		"a package without tests is nothing": {
			`{"Action":"start","Package":"p"}
{"Action":"skip","Package":"p"}`,
			nil,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := readGoResults(strings.NewReader(c.stream))
			wantResults(t, got, c.want, err)
		})
	}
}

func TestTAPResults(t *testing.T) {
	cases := map[string]struct {
		stream string
		want   []result
	}{
		"two programs, plan first and plan last": {
			"1..2\nok 1 - a\nnot ok 2 - b\n# why\nok 1 - c # SKIP no lua\n1..1\n",
			[]result{{name: "a"}, {name: "b", outcome: failed}, {name: "c", outcome: skipped, reason: "no lua"}},
		},
		"a program died": {
			"1..2\nok 1 - a\n",
			[]result{{name: "a"}, {name: "the TAP plan", outcome: failed, reason: "1 plans for 2 tests, 1 tests ran"}},
		},
		"nothing ran": {
			"cc -o x x.c\n",
			[]result{{name: "the TAP plan", outcome: failed, reason: "0 plans for 0 tests, 0 tests ran"}},
		},
		"bail out": {
			"1..1\nok 1\nBail out! no memory\n",
			[]result{{}, {name: "bail out", outcome: failed, reason: "no memory"}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := readTAPResults(strings.NewReader(c.stream))
			wantResults(t, got, c.want, err)
		})
	}
}

func wantResults(t *testing.T, got, want []result, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("result %d: got %+v, want %+v", i, got[i], want[i])
		}
	}
}

const (
	passingRun = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA"}
`
	skippingRun = `{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"skip","Package":"p","Test":"TestB"}
`
)

func TestSum(t *testing.T) {
	cases := map[string]struct {
		files  map[string]string
		allow  string
		expect []string
		status int
		ok     bool
		last   string
	}{
		"all passed": {
			files: map[string]string{
				"unit.jsonl":           passingRun,
				"c.tap":                "1..1\nok 1 - a\n",
				"steps/unit.json":      `{"step":"unit","status":0,"seconds":1}`,
				"steps/lint-yaml.json": `{"step":"lint/yaml","status":0,"seconds":1}`,
			},
			expect: []string{"unit", "c"}, ok: true, last: "3 passed, 0 failed, 0 skipped",
		},
		"a skip fails": {
			files: map[string]string{"unit.jsonl": passingRun + skippingRun},
			last:  "1 passed, 0 failed, 1 skipped",
		},
		"a skip that is in order": {
			files: map[string]string{"unit.jsonl": passingRun + skippingRun},
			allow: "TestB # needs a second machine\n", ok: true, last: "1 passed, 0 failed, 1 skipped",
		},
		"an expected run is missing": {
			files:  map[string]string{"unit.jsonl": passingRun},
			expect: []string{"unit", "suites"}, last: "1 passed, 1 failed, 0 skipped",
		},
		"an expected run only skipped": {
			files:  map[string]string{"unit.jsonl": passingRun, "suites.jsonl": skippingRun},
			expect: []string{"suites"}, allow: "TestB # why\n", last: "1 passed, 1 failed, 1 skipped",
		},
		"a failed step counts": {
			files: map[string]string{"steps/lint-yaml.json": `{"step":"lint/yaml","status":1,"seconds":1}`},
			last:  "0 passed, 1 failed, 0 skipped",
		},
		"a step that failed although its tests passed": {
			files: map[string]string{"unit.jsonl": passingRun, "steps/unit.json": `{"step":"unit","status":1,"seconds":1}`},
			last:  "1 passed, 1 failed, 0 skipped",
		},
		"make failed and nothing says why": {
			files:  map[string]string{"unit.jsonl": passingRun},
			status: 2, last: "1 passed, 1 failed, 0 skipped",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range c.files {
				write(t, filepath.Join(dir, "results", file), text)
			}
			allow := filepath.Join(dir, "allow")
			write(t, allow, c.allow)
			var out bytes.Buffer
			err := summarise(summaryOptions{dir: filepath.Join(dir, "results"), expect: c.expect,
				allowFile: allow, makeStatus: c.status}, &out)
			if c.ok != (err == nil) || (err != nil && !errors.Is(err, errFailed)) {
				t.Errorf("error %v", err)
			}
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if got := lines[len(lines)-1]; got != c.last {
				t.Errorf("last line %q, want %q, in\n%s", got, c.last, out.String())
			}
		})
	}
}

func TestAllowedSkipNeedsAReason(t *testing.T) {
	name := filepath.Join(t.TempDir(), "allow")
	write(t, name, "# a comment\nTestA\n")
	if _, err := readAllowed(name); err == nil || !strings.Contains(err.Error(), ":2:") {
		t.Errorf("got %v, want an error for line 2", err)
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
