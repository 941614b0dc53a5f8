// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// FuzzShow prints texts of users and nodes in all three forms. None contains control sequences of a terminal, and
// programs read the texts back.
func FuzzShow(f *testing.F) {
	for _, text := range []string{"", "n1", "123", "a: b", "\x1b[2J", "\u007f", "\u009b2J", "line\nline", "\ufeff", "null", "\u2028", "\U0010ffff", " - x", "\ufffe"} {
		f.Add(text, uint64(len(text)))
	}
	f.Fuzz(func(t *testing.T, text string, number uint64) {
		if !utf8.ValidString(text) {
			return // protobuf refuses it
		}
		node := &api.Node{Name: text, Kexecs: number}
		for _, output := range []string{outputTable, outputJSON, outputYAML} {
			var out strings.Builder
			a := &app{Invocation: Invocation{Stdout: &out}, output: output}
			if err := a.show(node, func(p *page) { p.row("NODE", node.GetName()); p.line("%s", node.GetName()) }); err != nil {
				t.Fatalf("%s of %q: %v", output, text, err)
			}
			moves := func(c rune) bool { return unicode.IsControl(c) && c != '\n' && c != '\t' }
			if strings.ContainsFunc(out.String(), moves) {
				t.Errorf("%s has control characters: %q", output, out.String())
			}
			var back struct {
				Name   string
				Kexecs uint64
			}
			switch output {
			case outputJSON:
				if err := json.Unmarshal([]byte(out.String()), &back); err != nil {
					t.Fatal(err)
				}
			case outputYAML:
				if err := yaml.Unmarshal([]byte(out.String()), &back); err != nil {
					t.Fatalf("%v:\n%s", err, out.String())
				}
			default:
				continue
			}
			if back.Name != text || back.Kexecs != number {
				t.Errorf("%s: %q, %d became %+v", output, text, number, back)
			}
		}
	})
}

// FuzzFigures passes on figures of a node to a client that watches a run.
func FuzzFigures(f *testing.F) {
	f.Add([]byte(`{"format":1,"result":{"format":1,"collectors":["syscalls","io","noise"],"syscalls":{"calls":[{"name":"read","count":0,"ns":5,"times":{"counts":[1]}}]},"noise":{},"io":{"files":[{}]}}}`), []byte(`{}`))
	f.Add([]byte(`{"result":{"collectors":["syscalls"],"coverage":[{}],"syscalls":{"calls":null}}}`), []byte(`null`))
	// A separate line, which a reader of lines would attribute to n2.
	f.Add([]byte("{\"format\":1,\"x\":\n{\"format\":1,\"node\":\"n2\"}\n}"), []byte(`{}`))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		for _, output := range []string{outputTable, outputJSON} {
			var out strings.Builder
			w := &watched{app: &app{Invocation: Invocation{Stdout: &out, Stderr: io.Discard}, output: output}, nodes: map[string]profiling.Result{}}
			taken := 0
			for node, figures := range map[string][]byte{"n1": first, "n2": second} {
				err := w.take(&api.WatchRunResponse{Run: &api.Run{Id: 1}, Node: node, Figures: figures})
				if err != nil && !json.Valid(figures) && !strings.Contains(err.Error(), node) {
					t.Errorf("%v does not name the node", err)
				}
				if err == nil {
					taken++
				}
			}
			if lines := strings.Count(out.String(), "\n"); output == outputJSON && lines != taken {
				t.Errorf("%d figures became %d lines: %q", taken, lines, out.String())
			}
			if len(w.nodes) > 0 {
				_ = w.picture() // nodes may not fit together
			}
			if strings.ContainsFunc(out.String(), func(c rune) bool { return unicode.IsControl(c) && c != '\n' && c != '\t' }) {
				t.Errorf("%s has control characters: %q", output, out.String())
			}
		}
	})
}

// FuzzOrigin shows the documents that a publisher registers with a kernel.
func FuzzOrigin(f *testing.F) {
	f.Add([]byte(`{"format":1,"name":"slim","source":{"package":"linux\u009b2J","patches":[{"name":"p"}]},"compiler":{"name":"gcc"},"profile":{"excluded":[{"object":"a.o"}]}}`),
		[]byte(`{"format":1,"facts":{"title":"x","made":"2026-11-20T15:00:00Z","rules":{"significance":0.05,"least_repetitions":3}}}`))
	f.Add([]byte(`{"format":1}`), []byte(`{"format":1}`))
	f.Fuzz(func(t *testing.T, provenance, found []byte) {
		for _, both := range [][2][]byte{{provenance, found}, {provenance, nil}, {nil, found}} {
			var o origin
			if err := o.read(both[0], both[1]); err != nil {
				continue
			}
			for _, output := range []string{outputTable, outputJSON, outputYAML} {
				var out strings.Builder
				a := &app{Invocation: Invocation{Stdout: &out}, output: output}
				if err := a.showVersion(&api.ProfileVersion{Kernel: &api.KernelSpec{Profile: "slim", Version: 1}}, o); err != nil {
					t.Fatalf("%s: %v", output, err)
				}
				if strings.ContainsFunc(out.String(), func(c rune) bool { return unicode.IsControl(c) && c != '\n' && c != '\t' }) {
					t.Errorf("%s has control characters: %q", output, out.String())
				}
				var back map[string]any
				if err := yaml.Unmarshal([]byte(out.String()), &back); output != outputTable && (err != nil || both[0] != nil && back["provenance"] == nil) {
					t.Errorf("%s is %q, %v", output, out.String(), err)
				}
			}
		}
	})
}
