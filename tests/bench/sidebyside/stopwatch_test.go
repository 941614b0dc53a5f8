// SPDX-License-Identifier: Apache-2.0

package sidebyside

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/measure"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/workload"
)

// asTheyAre shuffles nothing.
func asTheyAre(int, func(i, j int)) {}

// A word counts when all of it is there, in however many pieces it comes.
func TestArrivals(t *testing.T) {
	var copied bytes.Buffer
	a := &arrivals{to: &copied, words: []string{"begin", "end", "never"}, at: make([]time.Time, 3)}
	for _, piece := range []string{"noise be", "gin\n", "more", " en", "d\n", "begin"} {
		if n, err := a.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Fatal(n, err)
		}
		time.Sleep(2 * time.Millisecond)
	}
	if a.at[0].IsZero() || a.at[1].Sub(a.at[0]) < 4*time.Millisecond || !a.at[2].IsZero() || copied.String() != "noise begin\nmore end\nbegin" {
		t.Errorf("arrived %v, copied %q", a.at, copied.String())
	}
	if took, err := between(a.at); err != nil || took != a.at[1].Sub(a.at[0]) {
		t.Errorf("took %v, %v", took, err)
	}
	for _, at := range [][]time.Time{make([]time.Time, 2), {a.at[0], a.at[0]}} {
		if took, err := between(at); err == nil {
			t.Errorf("%v took %v", at, took)
		}
	}
}

func TestOrders(t *testing.T) {
	swap := func(n int, swap func(i, j int)) { swap(0, n-1) }
	for _, c := range []struct {
		kernels, rounds int
		shuffle         func(int, func(i, j int))
		want            [][]int
	}{
		{2, 4, asTheyAre, [][]int{{0, 1}, {1, 0}, {0, 1}, {1, 0}}},
		{3, 2, swap, [][]int{{2, 1, 0}, {0, 1, 2}}},
		{1, 4, swap, [][]int{{0}, {0}, {0}, {0}}},
	} {
		if got := orders(c.kernels, c.rounds, c.shuffle); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%d kernels, %d rounds: %v", c.kernels, c.rounds, got)
		}
	}
	// However they are shuffled, each kernel runs once a round.
	for _, order := range orders(7, 6, func(n int, swap func(i, j int)) {
		for i := range n {
			swap(i, (3*i+1)%n)
		}
	}) {
		if sorted := slices.Sorted(slices.Values(order)); !slices.Equal(sorted, []int{0, 1, 2, 3, 4, 5, 6}) {
			t.Errorf("order %v", order)
		}
	}
}

// timedBench is one whose QEMU says on the console what a guest would, takes a
// moment for it, and notes which kernel it was given.
func timedBench(t *testing.T, begin, end string) (b measure.Bench, ran string) {
	t.Helper()
	b = fixedBench(t)
	dir := filepath.Dir(b.Places.Programs)
	b.Console = &beginning{path: filepath.Join(dir, "seen")}
	ran = filepath.Join(dir, "ran")
	script := `#!/bin/sh
while [ $# -gt 0 ]; do
	[ "$1" != -kernel ] || basename "$(dirname "$2")" >>` + ran + `
	shift
done
` + begin + `
sleep 0.05
` + end + `
mkdir -p run out
echo 0 >run/exit
: >run/whole
printf '1 one 10\n2 two 5\n' >out/regions
echo "meltdown: $(cat ` + dir + `/flaw)" >out/mitigations
tar -c run/exit out run/whole | gzip >result.tar.gz
`
	for name, text := range map[string]string{"bin/qemu-system-x86_64": script, "a/bzImage": "a", "b/bzImage": "b", "flaw": "PTI"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return b, ran
}

// beginning makes a file whenever it has seen the first word.
type beginning struct {
	text []byte
	path string
}

func (b *beginning) Write(p []byte) (int, error) {
	if b.text = append(b.text, p...); !bytes.Contains(b.text, []byte(beginWord)) {
		return len(p), nil
	}
	b.text = nil
	return len(p), os.WriteFile(b.path, nil, 0o600)
}

const (
	// What takes a moment begins when the first word was seen.
	saysBegin = "echo '[1.0] " + beginWord + "' >console.log\n" +
		`seen=$(dirname "$0")/../seen; until [ -e "$seen" ]; do sleep 0.02; done; rm "$seen"`
	saysEnd  = "echo '" + endWord + "' >>console.log"
	saysBoth = "printf '[1.0] %s\\n%s\\n' '" + beginWord + "' '" + endWord + "' >console.log"
)

func timedLoad(t *testing.T) workload.Workload {
	t.Helper()
	w, err := workload.Parse("timed.yaml", []byte("name: timed\napplication: x\ndescription: x\noperation: x\nprograms: [own]\nrun: x\n"+
		"train: {seed: 1, size: 10}\ntest: {seed: 2, size: 20}\n"))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestWall(t *testing.T) {
	b, ran := timedBench(t, saysBegin, saysEnd)
	top, w := filepath.Dir(ran), timedLoad(t)
	kernels := []measure.Kernel{{Name: "a", Dir: filepath.Join(top, "a")}, {Name: "b", Dir: filepath.Join(top, "b")}}
	said := 0
	watch := Stopwatch{Bench: b, Rounds: 4, Shuffle: asTheyAre, Say: func(string, ...any) { said++ }}
	found, err := watch.Wall(t.Context(), kernels, w, w.Test, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	order, err := os.ReadFile(ran)
	if err != nil || strings.Join(strings.Fields(string(order)), "") != "abbaabba" {
		t.Errorf("kernels ran as %q, %v", order, err)
	}
	if len(found) != 2 || said != 8 {
		t.Fatalf("%d kernels, %d words", len(found), said)
	}
	for i, one := range found {
		values := one.Samples[0].Values
		if len(values) != 4 || slices.Min(values) < 0.01/15 || one.Mitigations[0] != "meltdown: PTI" {
			t.Errorf("kernel %d: %+v", i, one)
		}
		one.Samples[0].Values = nil
		want := verdict.Sample{Workload: "timed", Metric: verdict.EmulatedTime, Unit: "seconds/operation", Kernel: kernels[i].Name, Size: 20, Seed: 2, Operations: 15}
		if !reflect.DeepEqual(one.Samples, []verdict.Sample{want}) {
			t.Errorf("samples are %+v", one.Samples)
		}
	}
	// Only a processor's time decides anything.
	watch.KVM = true
	found, err = watch.Wall(t.Context(), kernels, w, w.Test, t.TempDir())
	if err != nil || found[0].Samples[0].Metric != verdict.WallTime {
		t.Errorf("on a processor: %+v, %v", found, err)
	}
}

func TestWallRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		begin, end, want string
		rounds           int
	}{
		"odd rounds":    {saysBegin, saysEnd, "3 rounds: an even number", 3},
		"too few":       {saysBegin, saysEnd, "2 rounds: an even number of at least 4", 2},
		"no end":        {saysBegin, ":", "does not say when it began and ended", 4},
		"at once":       {":", saysBoth, "its size is too small", 4},
		"another flaw":  {saysBegin, saysEnd + `; echo more >>"$(dirname "$0")/../flaw"`, "and before one of 15 (meltdown: PTImore)", 4},
		"not even that": {"exit 7", ":", "exit status 7", 4},
	} {
		t.Run(name, func(t *testing.T) {
			b, ran := timedBench(t, c.begin, c.end)
			w := timedLoad(t)
			watch := Stopwatch{Bench: b, Rounds: c.rounds}
			_, err := watch.Wall(t.Context(), []measure.Kernel{{Name: "a", Dir: filepath.Join(filepath.Dir(ran), "a")}}, w, w.Test, t.TempDir())
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, want %q", err, c.want)
			}
		})
	}
}

// The step's inputs name neither the plugin nor the exact machine: nothing is
// counted, and another bench of the same rounds has the same ones.
func TestInputsOfWall(t *testing.T) {
	b, w := fixedBench(t), timedLoad(t)
	inputs, err := Stopwatch{Bench: b, Rounds: 6}.Inputs(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	if inputs["plugin"] != "" || inputs["rounds"] != "6" || strings.Contains(inputs["machine"], "icount") || inputs["guest"] == "" || inputs["workload"] == "" {
		t.Errorf("inputs are %v", inputs)
	}
}

// fixedBench is one on which nothing depends on this machine: a QEMU that only
// says its version, and a package that is unpacked already.
func fixedBench(t *testing.T) measure.Bench {
	t.Helper()
	dir := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	put("bin/qemu-system-x86_64", "#!/bin/sh\necho QEMU emulator version 0\n")
	put("bin/apt-get", "#!/bin/sh\necho \"'http://some.host/served_1_amd64.deb' served_1_amd64.deb 100 SHA256:aa\"\n")
	t.Setenv("PATH", filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	line := sha256.Sum256([]byte("served_1_amd64.deb 100 SHA256:aa"))
	put("cache/package/served-"+hex.EncodeToString(line[:8])+"/usr/share/served/data", "data\n")
	put("programs/own", "own\n")
	put("programs/kbmark", "kbmark\n")
	return measure.Bench{
		Plugin: put("kbcount.so", "plugin\n"),
		Places: workload.Places{Programs: filepath.Join(dir, "programs"), Cache: filepath.Join(dir, "cache")},
	}
}
