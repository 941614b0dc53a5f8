// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"log/slog"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"

	"pgregory.net/rapid"
)

const smallCalls = `#
# 64-bit system call numbers and entry vectors
0	common	read			sys_read
5	common	fstat			sys_newfstat
206	64	io_setup		sys_io_setup   # a comment
425	common	io_uring_setup		sys_io_uring_setup
512	x32	rt_sigaction		compat_sys_rt_sigaction
`

func TestReadCalls(t *testing.T) {
	calls, err := ReadCalls(strings.NewReader(smallCalls))
	if err != nil {
		t.Fatal(err)
	}
	for call, want := range map[string][]string{
		"read":         {"__x64_sys_read", "__se_sys_read", "__do_sys_read"},
		"fstat":        {"__x64_sys_newfstat", "__se_sys_newfstat", "__do_sys_newfstat"},
		"rt_sigaction": nil, "call 477": nil, "": nil,
		foreignCalls: compatEntries,
	} {
		if got := calls.entries(call); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", call, got, want)
		}
	}
	if _, err := ReadCalls(strings.NewReader("# nothing\n")); err == nil {
		t.Error("no table, no error")
	}
}

func TestReadNames(t *testing.T) {
	pieces, err := ReadLinkMap(strings.NewReader(smallMap))
	if err != nil {
		t.Fatal(err)
	}
	names, err := ReadNames(strings.NewReader(`ffffffff81000000 T f
ffffffff81000004 t g.isra.0
ffffffff81000004 t alias
ffffffff81000010 t f
ffffffff81000011 W h.constprop.0.cold
ffffffff8100000e t in_a_gap
ffffffff82000000 t start
ffffffff82001000 d data
`), pieces)
	want := Names{"f": {"a/b/x.o", "lib/y.o"}, "g": {"a/b/x.o"}, "alias": {"a/b/x.o"}, "h": {"lib/y.o"}, "start": {"a/y.o"}}
	if err != nil || !reflect.DeepEqual(names, want) {
		t.Errorf("%v, %v", names, err)
	}
	if _, err := ReadNames(strings.NewReader("ffffffff90000000 T f\n"), pieces); err == nil {
		t.Error("a System.map of another kernel, and no error")
	}
}

// someNames are those of a kernel in which put_page is a function of two objects,
// and which was built without io_uring.
func someNames() Names {
	return Names{
		"__x64_sys_read": {"fs/read.o"}, "__se_sys_read": {"fs/read.o"}, "ksys_read": {"fs/read.o"},
		"__x64_sys_io_setup": {"fs/aio.o"}, "__se_sys_io_setup": {"fs/aio.o"}, "io_submit_one": {"fs/aio.o"}, "aio_write": {"fs/aio.o"},
		"__x64_sys_newfstat": {"fs/stat.o"}, "__x64_sys_io_uring_setup": {notThere},
		"put_page": {"fs/aio.o", "fs/read.o"}, "sk_diag_fill": {"net/inet_diag.o", "net/unix_diag.o"}, "unix_diag_dump": {"net/unix_diag.o"},
	}
}

func someUses() Uses {
	uses := Uses{}
	for _, use := range []Use{{Object: "fs/read.o", Coverage: Hot, Ran: 5}, {Object: "fs/aio.o", Coverage: Cold}, {Object: "fs/stat.o", Coverage: Warm, Ran: 3},
		{Object: "net/inet_diag.o", Coverage: Started}, {Object: "net/unix_diag.o", Coverage: Cold}, {Object: notThere, Coverage: Cold}} {
		use.Text = 10
		uses[use.Object] = use
	}
	return uses
}

func TestTraceCoverage(t *testing.T) {
	calls, err := ReadCalls(strings.NewReader(smallCalls))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		traces []JobTrace
		seen   map[string]string // objects that become hot, and why
		says   []string          // of each run
	}{
		"nobody": {},
		"what the workload needs too": {[]JobTrace{{Run: 3, Calls: []string{"read"}, Functions: []string{"ksys_read"}}}, nil,
			[]string{"run 3: 2 of the 2 functions and system calls that its job used are in this kernel; the workload needs all of that too"}},
		"a call": {[]JobTrace{{Run: 3, Calls: []string{"io_setup"}}}, map[string]string{"fs/aio.o": "run 3: system call io_setup"},
			[]string{"run 3: 1 of the 1 functions and system calls that its job used are in this kernel; for it stay fs/aio.o"}},
		"a call whose function has another name": {[]JobTrace{{Run: 3, Calls: []string{"fstat"}}}, map[string]string{"fs/stat.o": "run 3: system call fstat"}, nil},
		"functions": {[]JobTrace{{Run: 3, Calls: []string{"io_setup"}, Functions: []string{"aio_write", "io_submit_one"}}},
			map[string]string{"fs/aio.o": "run 3: system call io_setup and 2 more"}, nil},
		"two runs": {[]JobTrace{{Run: 3, Functions: []string{"aio_write"}}, {Run: 12, Functions: []string{"aio_write", "unix_diag_dump"}}},
			map[string]string{"fs/aio.o": "run 3: function aio_write; run 12: function aio_write", "net/unix_diag.o": "run 12: function unix_diag_dump"},
			[]string{"run 3: 1 of the 1 functions and system calls that its job used are in this kernel; for it stay fs/aio.o",
				"run 12: 2 of the 2 functions and system calls that its job used are in this kernel; for it stay fs/aio.o net/unix_diag.o"}},
		"a name of several objects, one of which ran": {[]JobTrace{{Run: 3, Functions: []string{"put_page"}}}, nil, nil},
		"one of which was seen, by a later run": {[]JobTrace{{Run: 3, Functions: []string{"sk_diag_fill"}}, {Run: 4, Functions: []string{"unix_diag_dump"}}},
			map[string]string{"net/unix_diag.o": "run 4: function unix_diag_dump"}, nil},
		"none of which was": {[]JobTrace{{Run: 3, Functions: []string{"sk_diag_fill"}}},
			map[string]string{"net/inet_diag.o": "run 3: function sk_diag_fill, which stands in several objects",
				"net/unix_diag.o": "run 3: function sk_diag_fill, which stands in several objects"}, nil},
		"another kernel's": {[]JobTrace{{Run: 3, Calls: []string{"call 477", "io_uring_setup", foreignCalls}, Functions: []string{"nfs_read", "\x1b[31m\nCONFIG_X=y"}}}, nil,
			[]string{"run 3: 0 of the 5 functions and system calls that its job used are in this kernel; 3 are unknown to it: nfs_read ...; " +
				"the workload needs all of that too; no fragment of the recipe asks for the system calls io_uring_setup [32-bit call]"}},
	} {
		uses := someUses()
		witnesses := uses.AddRuns(c.traces, someNames(), calls)
		for object, before := range someUses() {
			want := before
			if words := c.seen[object]; words != "" {
				want.Coverage, want.Seen = Hot, words
			}
			if uses[object] != want {
				t.Errorf("%s: %+v, want %+v", name, uses[object], want)
			}
		}
		for i, says := range c.says {
			if got := witnesses[i].String(); got != says {
				t.Errorf("%s: %q, want %q", name, got, says)
			}
		}
		if again := uses.AddRuns(c.traces, someNames(), calls); len(again) != len(c.traces) {
			t.Errorf("%s: %d witnesses", name, len(again))
		}
	}
}

// What is said of an option that stays for a job alone.
func TestSlimKeepsWhatAJobUsed(t *testing.T) {
	facts := coldTree(t)
	trace := JobTrace{Run: 3, Functions: []string{"cubic_init", "nowhere"}, FileSystems: []string{"aio", "diag", "tmpfs"}}
	witnesses := facts.Uses.AddRuns([]JobTrace{trace}, Names{"cubic_init": {"net/tcp/cubic.o"}}, Calls{})
	facts.Keep.KeepFileSystems([]JobTrace{trace}, witnesses, facts.Kbuild, kconfig.Config{"NET": "y", "DIAG": "y"})
	b := &bench{kconfig: facts.Kconfig}
	input := Input{Name: "small", Facts: facts, Runs: witnesses, Kernels: b, Answers: Answers(t.TempDir()), Log: slog.New(slog.DiscardHandler)}
	outcome, err := Slim(t.Context(), input)
	if err != nil {
		t.Fatal(err)
	}
	if got := symbols(outcome.Gone); got != "AIO BLOCK PCI_MMCONFIG" {
		t.Errorf("gone %s", got)
	}
	for symbol, want := range map[string]string{
		"TCP_CUBIC": "net/tcp/cubic.o was used by a job, run 3: function cubic_init",
		"TCP":       "net/tcp/cubic.o was used by a job, run 3: function cubic_init",
		"DIAG":      "kept: run 3: its job had files on the file system diag",
	} {
		if got := reason(t, outcome, symbol); got != want {
			t.Errorf("%s: %q, want %q", symbol, got, want)
		}
	}
	checkFragment(t, outcome)
	text := strings.Join(strings.Fields(strings.ReplaceAll(string(outcome.Fragment()), "#", "")), " ")
	for _, words := range []string{"- run 3: 1 of the 2 functions and system calls that its job used are in this kernel; 1 are unknown to it: nowhere; for it stay net/tcp/cubic.o; no fragment of the recipe asks for the file systems aio."} {
		if !strings.Contains(text, words) {
			t.Errorf("no %q in\n%s", words, outcome.Fragment())
		}
	}
}

// Whatever runs and jobs used, a trace gives reasons to stay and takes none: no
// option goes with it that stays without, and nothing goes that a job was seen to
// use.
func TestATraceTakesNoReasonAway(t *testing.T) {
	kbuild, options := readTree(t)
	names := Names{}
	for _, object := range slices.Sorted(maps.Keys(kbuild.Objects)) {
		names["f_"+object] = []string{object}
		names["shared"] = append(names["shared"], object)
	}
	rapid.Check(t, func(t *rapid.T) {
		uses := Uses{}
		for _, object := range slices.Sorted(maps.Keys(kbuild.Objects)) {
			if built, _ := kbuild.Built(object, treeConfig); built {
				heat := rapid.SampledFrom([]Coverage{NoCode, Cold, Started, Warm, Hot}).Draw(t, object)
				uses[object] = Use{Object: object, Coverage: heat, Text: 100}
			}
		}
		facts := Facts{Config: treeConfig, Kbuild: kbuild, Kconfig: options, Uses: uses, Keep: Keep{}}
		functions := rapid.SliceOfNDistinct(rapid.SampledFrom(append(slices.Sorted(maps.Keys(names)), "nowhere")), 0, 4, rapid.ID[string]).Draw(t, "functions")
		with := facts
		with.Uses = maps.Clone(uses)
		with.Uses.AddRuns([]JobTrace{{Run: 3, Functions: functions}}, names, Calls{})
		less, more := off(with), off(facts)
		for symbol := range less {
			if !more[symbol] {
				t.Errorf("%s goes with the trace and stays without it", symbol)
			}
		}
		after := options.Without(treeConfig, Propose(with).Off(), options.Calibrated(treeConfig, nil))
		for _, function := range functions {
			object := strings.TrimPrefix(function, "f_")
			was, _ := kbuild.Built(object, treeConfig)
			if is, _ := kbuild.Built(object, after); was && !is && with.Uses[object].Coverage != NoCode {
				t.Errorf("%s was used and goes", object)
			}
		}
	})
}

// off are the options that a proposal switches off, and those that go with them.
func off(facts Facts) map[string]bool {
	gone := map[string]bool{}
	after := facts.Kconfig.Without(facts.Config, Propose(facts).Off(), facts.Kconfig.Calibrated(facts.Config, facts.Asked))
	for _, symbol := range kconfig.SwitchedOff(facts.Config, after) {
		gone[symbol] = true
	}
	return gone
}

func TestJobTracesTravel(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, trace JobTrace) string {
		path := filepath.Join(dir, name)
		if err := trace.Write(path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	third := JobTrace{Run: 3, Results: []JobResult{{Node: "n1", Digest: "sha256:ab"}}, Releases: []string{"6.1.0-56-amd64"}, Calls: []string{"read"}}
	twelfth, none := write("12", JobTrace{Run: 12}), write("0", JobTrace{})
	got, err := ReadJobTraces([]string{twelfth, write("3", third)})
	if err != nil || len(got) != 2 || !reflect.DeepEqual(got[0], third) || got[1].Run != 12 {
		t.Errorf("%+v, %v", got, err)
	}
	for words, paths := range map[string][]string{
		"trace of run 12: it is there twice": {twelfth, twelfth}, "no number of a run": {none}, "no such file": {filepath.Join(dir, "none")},
	} {
		if _, err := ReadJobTraces(paths); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want %q", err, words)
		}
	}
}
