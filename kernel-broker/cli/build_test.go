// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/client"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/catalog"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kernelbuild"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pipeline"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report/kernelreport"
	"github.com/kernelbroker/kernelbroker/tests/support/perftest"
)

// A "=" in a file's name is no weight.
func TestSamplesOfNames(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"perf.data", "host=n1.data", "run=7", "run=7=2"} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for text, want := range map[string]pipeline.Samples{
		"perf.data":      {Path: "perf.data", Weight: 1},
		"perf.data=3":    {Path: "perf.data", Weight: 3},
		"host=n1.data":   {Path: "host=n1.data", Weight: 1},
		"host=n1.data=5": {Path: "host=n1.data", Weight: 5},
		"run=7":          {Path: "run=7", Weight: 1},
		"run=7=2":        {Path: "run=7=2", Weight: 1},
		"run=7=3":        {Path: "run=7", Weight: 3},
	} {
		if got, err := samples([]string{text}); err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

func TestBuildRefuses(t *testing.T) {
	f := newFixture(t)
	cache := t.TempDir()
	for words, arguments := range map[string][]string{
		"accepts 1 arg(s), received 0":                {},
		`--where "mars" is neither local nor slurm`:   {"mitgcm", "--where", "mars"},
		`--publish "maybe" is neither auto nor never`: {"mitgcm", "--publish", "maybe"},
		"--jobs and --parallel: at least 1":           {"mitgcm", "--jobs", "0"},
		"--partition and --sbatch are for":            {"mitgcm", "--partition", "p"},
		"--sign-key is for a kernel that":             {"mitgcm", "--publish", "never", "--sign-key", "k"},
		"goes neither with --until":                   {"mitgcm", "--instrumented", "--until", "plain"},
		"--until nor --publish never":                 {"mitgcm", "--instrumented", "--publish", "never"},
		`"x" is not a run: write its number`:          {"mitgcm", "--from-run", "3,x"},
		`--from-perf "a=0": the weight is a number`:   {"mitgcm", "--from-perf", "a=0"},
		"--from-perf: stat nowhere":                   {"mitgcm", "--from-perf", "nowhere"},
		"profile name \"MITgcm\"":                     {"MITgcm"},
		"received 3":                                  {"log", "a", "b", "c"},
	} {
		f.must(2, words, append([]string{"kernel", "build", "--cache", cache}, arguments...)...)
	}
	f.must(3, `kernel "slim": no kernel counts for it: its recipe does not say optimisation: pgo`,
		"kernel", "build", "slim", "--instrumented", "--cache", cache, "--catalog", "../../catalog")
	f.must(1, `kernel "mitgcm-counters": its recipe takes no branches`,
		"kernel", "build", "mitgcm-counters", "--publish", "never", "--cache", cache, "--catalog", "../../catalog", "--from-perf", "build_test.go=3")
	// Before the first step, of which the cache would know.
	f.must(1, "record again with --buildid-mmap", "kernel", "build", "bench-autofdo-mitgcm", "--publish", "never", "--cache", cache, "--catalog", "../../catalog",
		"--from-perf", perftest.Data(t, perftest.Recording{Samples: 1}))
	if _, err := os.Stat(filepath.Join(cache, "graph")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("steps were begun: %v", err)
	}
	f.must(1, `kernel "nothing": no such recipe`, "kernel", "build", "nothing", "--cache", cache, "--catalog", "../../catalog")
	socket := filepath.Join(t.TempDir(), "nobody.sock")
	if code, _, stderr := runAt(t, socket, "kernel", "build", "mitgcm", "--cache", cache); code != 4 || !strings.Contains(stderr, "cannot be reached") {
		t.Errorf("a broker that is away: exit %d, %s", code, stderr)
	}
	if code, _, stderr := runAt(t, socket, "kernel", "build", "mitgcm", "--instrumented", "--cache", cache); code != 4 || !strings.Contains(stderr, "cannot be reached") {
		t.Errorf("the same for a kernel that counts: exit %d, %s", code, stderr)
	}
	if code, _, stderr := runAt(t, socket, "kernel", "build", "nothing", "--cache", cache, "--publish", "never"); code != 1 || !strings.Contains(stderr, "no such recipe") {
		t.Errorf("no broker is needed: exit %d, %s", code, stderr)
	}
}

// aBuild leaves what a build with a failure leaves in the cache.
func aBuild(t *testing.T, cache string) {
	t.Helper()
	done := func(_ context.Context, w *graph.Work) error {
		w.Say("all is well")
		w.Units(3, 4)
		return os.WriteFile(filepath.Join(w.Dir, "x"), []byte("8 bytes\n"), 0o644)
	}
	g, err := graph.New(graph.Step{Name: "source", Run: done},
		graph.Step{Name: "plain", Needs: map[string]string{"s": "source"}, Run: func(_ context.Context, w *graph.Work) error {
			w.Say("one.c:1: error: no such thing")
			return errors.New("make bzImage: exit status 2")
		}},
		graph.Step{Name: "boot", Needs: map[string]string{"k": "plain"}, Run: done})
	if err != nil {
		t.Fatal(err)
	}
	runner := graph.Runner{Store: pipeline.StoreIn(cache)}
	if _, err := runner.Run(t.Context(), "mitgcm", g); err == nil {
		t.Fatal("the build did not fail")
	}
}

func TestStatusAndLog(t *testing.T) {
	f := newFixture(t)
	cache := t.TempDir()
	f.must(3, `"mitgcm" was never built here`, "kernel", "build", "status", "mitgcm", "--cache", cache)
	f.must(2, "profile name", "kernel", "build", "status", "../x", "--cache", cache)
	aBuild(t, cache)
	out := f.must(0, "", "kernel", "build", "status", "mitgcm", "--cache", cache)
	for _, words := range []string{"State:   failed", "source  done", "3 of 4", "plain   failed", " for this build; results of 8 B", "8 B     3 of 4", "boot    pending", "one.c:1: error: no such thing"} {
		if !strings.Contains(out, words) {
			t.Errorf("no %q in\n%s", words, out)
		}
	}
	var status graph.Status
	if err := json.Unmarshal([]byte(f.must(0, "", "kernel", "build", "status", "mitgcm", "--cache", cache, "-o", "json")), &status); err != nil {
		t.Fatal(err)
	}
	if status.Name != "mitgcm" || status.State != graph.Failed || len(status.Steps) != 3 || status.Steps[0].Digest == "" {
		t.Errorf("%+v", status)
	}
	if out := f.must(0, "plain of mitgcm: failed", "kernel", "build", "log", "mitgcm", "--cache", cache, "--follow"); out != "one.c:1: error: no such thing\n" {
		t.Errorf("log of what failed: %q", out)
	}
	if out := f.must(0, "source of mitgcm: done", "kernel", "build", "log", "mitgcm", "source", "--cache", cache); out != "all is well\n" {
		t.Errorf("log of source: %q", out)
	}
	f.must(3, `"mitgcm" has no step "x", it has [source plain boot]`, "kernel", "build", "log", "mitgcm", "x", "--cache", cache)
	f.must(3, `step "boot" of "mitgcm" has no output yet`, "kernel", "build", "log", "mitgcm", "boot", "--cache", cache)
}

// reader is what somebody has read, and tells when it has a word in it.
type reader struct {
	text strings.Builder
	word string
	has  chan struct{}
	once sync.Once
}

func (r *reader) Write(p []byte) (int, error) {
	n, err := r.text.Write(p)
	if strings.Contains(r.text.String(), r.word) {
		r.once.Do(func() { close(r.has) })
	}
	return n, err
}

// TestLogFollows reads the log of a step that is at work in another goroutine,
// which says its last word when its first was read.
func TestLogFollows(t *testing.T) {
	cache := t.TempDir()
	began, over := make(chan struct{}), make(chan struct{})
	out, wrong := &reader{word: "first", has: make(chan struct{})}, &bytes.Buffer{}
	g, err := graph.New(graph.Step{Name: "slow", Run: func(_ context.Context, w *graph.Work) error {
		w.Say("first")
		close(began)
		select {
		case <-out.has:
		case <-over:
		}
		w.Say("last")
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		_, err := (&graph.Runner{Store: pipeline.StoreIn(cache)}).Run(t.Context(), "mitgcm", g)
		ended <- err
	}()
	<-began
	code := Run(t.Context(), Invocation{Args: []string{"kernel", "build", "log", "mitgcm", "-f", "--cache", cache}, Stdout: out, Stderr: wrong,
		Getenv: func(string) string { return "" }})
	close(over)
	if code != 0 || out.text.String() != "first\nlast\n" || !strings.Contains(wrong.String(), "slow of mitgcm: running") {
		t.Errorf("exit %d, %q, %q", code, out.text.String(), wrong)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// aCandidate is a kernel with a report, as a build left it before strings were weighed.
func aCandidate(t *testing.T, cache string, outcome kb.Outcome) pipeline.Candidate {
	t.Helper()
	kernels := filepath.Join(cache, "kernels")
	dir := writeKernel(t, kernels, "mitgcm", "better bytes")
	image, err := catalog.DescribeFile(filepath.Join(dir, "bzImage"), catalog.MaxInitrd)
	if err != nil {
		t.Fatal(err)
	}
	c := pipeline.Candidate{Name: "mitgcm", ID: image.Digest[7:19], Made: noon, Release: "6.1.0-mitgcm", BuildID: "ab", ImageDigest: image.Digest, ImageSize: 12,
		Application: "MITgcm", Description: "Slim kernel", Outcome: outcome, Reason: "kernel instructions -6 %", Kernel: dir, Report: filepath.Join(cache, "report")}
	run := verdict.Run{Workload: "w", Seed: 7, Size: 3}
	sample := func(kernel string, value float64) verdict.Sample {
		return verdict.Sample{Workload: "w", Metric: verdict.KernelInstructions, Unit: "instructions/operation", Kernel: kernel, Exact: true,
			Values: []float64{value}, Seed: 7, Size: 3, Operations: 3}
	}
	made, err := kernelreport.Make(kernelreport.Facts{Subject: "mitgcm", Application: "MITgcm", Current: "stock", Stock: "stock", Made: "2026-11-20T12:00:00Z",
		Kernels: []kernelreport.Kernel{{Kernel: verdict.Kernel{Name: "mitgcm"}, Provenance: kernelreport.Provenance{ImageDigest: image.Digest}},
			{Kernel: verdict.Kernel{Name: "stock"}}},
		Workloads:    []kernelreport.Workload{{Name: "w", Operation: "write"}},
		Applications: []verdict.Application{{Name: "MITgcm", Test: run, Kernel: "mitgcm"}},
		Samples:      []verdict.Sample{sample("mitgcm", 94), sample("stock", 100)},
		Checks:       []verdict.CheckRun{{Workload: "w", Kernel: "mitgcm", Passed: true}},
		Rules:        verdict.DefaultRules()})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(c.Report, 0o755); err != nil {
		t.Fatal(err)
	}
	for path, fill := range map[string]func(*os.File) error{
		c.JSON(): func(f *os.File) error { return made.WriteJSON(f) },
		c.Page(): func(f *os.File) error { return made.WriteHTML(f) },
	} {
		file, err := os.Create(path)
		if err == nil {
			err = errors.Join(fill(file), file.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if c.Measured, err = readMeasurement(c.JSON(), "", c.ImageDigest, ""); err != nil {
		t.Fatal(err)
	}
	c.Measured.Outcome = outcome
	return c
}

func TestCandidates(t *testing.T) {
	f := newFixture(t)
	cache := t.TempDir()
	f.must(0, "no candidates", "kernel", "candidates", "--cache", cache)
	if err := pipeline.CandidatesIn(cache).Put(aCandidate(t, cache, kb.OutcomeNoBenefit)); err != nil {
		t.Fatal(err)
	}
	out := f.must(0, "", "kernel", "candidates", "mitgcm", "--cache", cache)
	if !strings.Contains(out, "no benefit  none  2026-11-20 13:00") || !strings.Contains(out, "kernel instructions -6 %") {
		t.Error(out)
	}
	if out := f.must(0, "", "kernel", "candidates", "other", "--cache", cache, "-o", "yaml"); out != "candidates: []\n" {
		t.Error(out)
	}
}

// documentFile is digest and size of a document: how a report looks changes
// more often than what this command says of it.
var documentFile = regexp.MustCompile(`(- name: (?:provenance|report|page)\n +digest: )\S+(\n +size: )\d+`)

// A kernel that won is registered with all that is known of it.
func TestPublish(t *testing.T) {
	f := newFixture(t)
	dir, kernels := invented(t)
	f.must(0, "", "profile", "apply", dir, "--kernels", kernels)
	c := aCandidate(t, t.TempDir(), kb.OutcomeBenefit)
	a := &app{config: client.DefaultPath, Invocation: Invocation{Getenv: func(string) string { return "unix://" + f.socket }, Stdout: os.Stdout, Stderr: new(strings.Builder)}}
	t.Cleanup(func() { _ = a.conn.Close() })
	publisher := kernelbuild.Publisher{Broker: buildBroker{app: a, signature: &signature{}}, Beaten: defaultImage(t, a, "mitgcm")}
	for range 2 { // the second time nothing is left to do
		var log strings.Builder
		ref, err := publisher.Publish(t.Context(), c, &log)
		if err != nil || ref != "mitgcm@2" {
			t.Fatalf("%s, %v", ref, err)
		}
	}
	if out := f.must(0, "", "profile", "check", "mitgcm"); out != "mitgcm@2\n" {
		t.Errorf("jobs get %s", out)
	}
	golden(t, "kernel-published.table", f.must(0, "", "kernel", "show", "mitgcm"))
	shown := f.must(0, "", "kernel", "show", "mitgcm@2", "-o", "yaml")
	shown = documentFile.ReplaceAllString(shown, "${1}DIGEST${2}SIZE")
	golden(t, "kernel-published.yaml", regexp.MustCompile(`(report_digest: )\S+`).ReplaceAllString(shown, "${1}DIGEST"))
	cache := t.TempDir()
	current := func(name string) (string, error) {
		broker := buildBroker{app: a}
		profile, err := broker.Profile(t.Context(), name)
		if err != nil {
			return "", err
		}
		return kernelbuild.CurrentKernel(t.Context(), broker, profile, cache)
	}
	folder, err := current("mitgcm")
	if err != nil || !strings.HasPrefix(folder, cache) {
		t.Fatalf("%s, %v", folder, err)
	}
	// It comes with the manifest that was registered with it.
	if m, err := build.ReadManifest(folder); err != nil || m.Image.Digest != c.ImageDigest || m.Source.Package != "linux-source-6.1" {
		t.Errorf("its manifest is %+v, %v", m, err)
	}
	if text, err := os.ReadFile(filepath.Join(folder, "bzImage")); err != nil || string(text) != "better bytes" {
		t.Errorf("the kernel that jobs get is %q, %v", text, err)
	}
	if folder, err := current("other"); folder != "" || err != nil {
		t.Errorf("a profile that does not exist: %s, %v", folder, err)
	}
}

// defaultImage is the digest of a profile's default kernel.
func defaultImage(t *testing.T, a *app, name string) string {
	t.Helper()
	profile, err := buildBroker{app: a}.Profile(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	v, err := profile.Version(profile.DefaultVersion)
	if err != nil {
		t.Fatal(err)
	}
	return v.Kernel.ImageDigest
}

// A kernel that won can be signed, as nodes with a trust list ask.
func TestPublishSigned(t *testing.T) {
	f := newFixture(t)
	path, trust := f.key(t)
	a := &app{config: client.DefaultPath, Invocation: Invocation{Getenv: func(string) string { return "unix://" + f.socket }, Stdout: os.Stdout, Stderr: new(strings.Builder)}}
	s := signature{keys: []string{path}, cluster: "alpha", valid: time.Hour}
	if err := s.open(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	ref, err := kernelbuild.Publisher{Broker: buildBroker{app: a, signature: &s}}.Publish(t.Context(), aCandidate(t, t.TempDir(), kb.OutcomeBenefit), new(strings.Builder))
	t.Cleanup(func() { _ = a.conn.Close() })
	if err != nil || ref != "mitgcm@1" {
		t.Fatalf("%s, %v", ref, err)
	}
	if m := f.verify(t, trust, kb.Ref{Profile: "mitgcm", Version: 1}); m.Cluster != "alpha" {
		t.Errorf("signed %+v", m)
	}
}

// A kernel that failed is shown with its last words, and the command fails.
func TestFailedCandidate(t *testing.T) {
	var stdout strings.Builder
	a := &app{Invocation: Invocation{Stdout: &stdout}, output: outputTable}
	c := pipeline.Candidate{Name: "mitgcm", ID: "0123456789ab", Outcome: pipeline.Failed, Reason: "the kernel does not boot: kernel panic",
		Console: "mounting\n\x1b[31mKernel panic - not syncing: no root"}
	if err := a.showCandidate(c); err == nil || err.Error() != `kernel "mitgcm": nothing is published: the kernel does not boot: kernel panic` {
		t.Error(err)
	}
	for _, words := range []string{"Verdict:    failed", "last words:\n  mounting\n  [31mKernel panic - not syncing: no root\n"} {
		if !strings.Contains(stdout.String(), words) {
			t.Errorf("no %q in\n%s", words, stdout.String())
		}
	}
	c.Outcome = kb.OutcomeNoBenefit
	if err := a.showCandidate(c); err != nil {
		t.Error(err)
	}
}

// What weakens the processor's mitigations is refused, unless the site says that
// profiles may.
func TestMitigationsAreTheSitesChoice(t *testing.T) {
	f := newFixture(t)
	dir := bootable(t, t.TempDir(), "fast")
	register := []string{"kernel", "register", "--no-boot-test", "--profile", "fast", "--kernel", filepath.Join(dir, "bzImage"), "--manifest", filepath.Join(dir, "kernel.json"), "--argument", "mitigations=off"}
	f.must(3, `kernel "fast": mitigations=off: profiles keep the stock kernel's mitigations`, register...)
	f.must(3, "", "kernel", "show", "fast")
	policy := filepath.Join(t.TempDir(), "factory.yaml")
	if err := os.WriteFile(policy, []byte("mitigations: any\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	f.must(0, "", append(register, "--site", policy)...)
	// It is registered; that the site thinks otherwise since does no harm.
	f.must(0, "fast@1 is this kernel already", register...)
	f.must(1, "site's policy: open /nowhere", append(register, "--site", "/nowhere")...)
	f.must(1, "site's policy: open /nowhere", "kernel", "build", "mitgcm", "--publish", "never", "--cache", t.TempDir(), "--site", "/nowhere")
}
