// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/scontrol"
)

var update = flag.Bool("update", false, "write what comes out into testdata")

// TestTraces replays what slurmctld showed of a node, recorded from emulated clusters of three versions of Slurm by
//
//	KB_SLURM=26.05 go test -tags emulated ./tests/emulated -run TestTrace -args -record
//
// and compares what it means with the .golden file beside it.
func TestTraces(t *testing.T) {
	files, err := filepath.Glob("testdata/*/*.trace")
	if err != nil || len(files) == 0 {
		t.Fatalf("no traces: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(strings.TrimPrefix(file, "testdata/"), ".trace"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, golden := replay(t, string(text)), strings.TrimSuffix(file, ".trace")+".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if want, err := os.ReadFile(golden); err != nil || got != string(want) {
				t.Errorf("it means something else, see with -update: %v\n%s", err, got)
			}
		})
	}
}

// replay tells what each line of a trace means: > is what somebody did, = a fact, and all others are slurmctld's.
func replay(t *testing.T, text string) string {
	var (
		out  strings.Builder
		s    kb.SlurmSide
		row  kb.SlurmNode
		f    = Facts{At: at, Now: at, Refused: func(time.Time) bool { return false }}
		last string
	)
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "#") {
			fmt.Fprintln(&out, line)
			continue
		}
		offset, rest, _ := strings.Cut(line, " ") // seconds, to a tenth
		seconds, err := strconv.ParseFloat(offset, 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		f.At = at.Add(time.Duration(seconds * float64(time.Second)))
		f.Now = f.At
		switch {
		case rest == "> broker: arm return": // as the plan does
			s.Requested = kb.SlurmBoot{Phase: kb.BootAsked, Owner: kb.OwnerBroker, Since: f.Now}
			fallthrough
		case strings.HasPrefix(rest, "> "):
			fmt.Fprintf(&out, "%6s %s\n", offset, rest)
			continue
		case rest == "= thrown off":
			f.ThrownOff = true
		default:
			var is bool
			if row, is = scontrol.ParseNode(rest); !is {
				t.Fatalf("no line of a node: %q", rest)
			}
			fmt.Fprintf(&out, "%6s %s %q\n", offset, row.FullState(), row.Reason)
		}
		s = Node(s, row, f)
		if now := means(s); now != last {
			fmt.Fprintf(&out, "       %s\n", now)
			last = now
		}
	}
	return out.String()
}

// means is a state in words.
func means(s kb.SlurmSide) string {
	var words []string
	boot := func(name string, b kb.SlurmBoot) {
		if b.Phase != kb.BootNone {
			words = append(words, fmt.Sprintf("%s the boot of the %s: %s", name, b.Owner, b.Phase))
		}
	}
	boot("awaits", s.Awaited)
	boot("then", s.Requested)
	service := "in service"
	if s.Service.State != kb.ServiceIn {
		service = string(s.Service.State)
	}
	if s.Service.Author != kb.AuthorNone {
		service += fmt.Sprintf(", by %s: %q", s.Service.Author, s.Service.Reason)
	}
	return strings.Join(append(words, service), "; ")
}
