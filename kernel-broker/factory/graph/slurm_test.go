// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The programs of a fake Slurm: a job is a process in the background, and all
// that is known of it stands in files of the folder $FAKE_SLURM, none of which
// is seen half written.
const (
	fakeSbatch = `#!/bin/sh
echo "sbatch $*" >>"$FAKE_SLURM/calls"
[ ! -e "$FAKE_SLURM/closed" ] || { echo 'sbatch: error: Batch job submission failed: Invalid partition name specified' >&2; exit 1; }
id=$(($(cat "$FAKE_SLURM/last") + 1)); echo $id >"$FAKE_SLURM/last"
while [ $# -gt 0 ]; do
	case $1 in
	--output) out=$2; shift 2 ;;
	--job-name) name=$2; shift 2 ;;
	*) shift ;;
	esac
done
job="$FAKE_SLURM/job$id"
cat >"$job.script"
echo "$name" >"$job.name"
say() { echo "$1" >"$2.new" && mv "$2.new" "$2"; }
say PENDING "$job.state"
(
	exec >"$(echo "$out" | sed "s/%j/$id/")" 2>&1 </dev/null
	while [ -e "$FAKE_SLURM/busy" ]; do sleep 0.02; done
	[ "$(cat "$job.state")" = PENDING ] || exit
	sh "$job.script" & say $! "$job.pid"
	say RUNNING "$job.state"
	wait $! && end=COMPLETED || end=FAILED
	[ "$(cat "$job.state")" != RUNNING ] || say $end "$job.state"
) &
echo "$id;fake"
`
	fakeSqueue = `#!/bin/sh
[ ! -e "$FAKE_SLURM/away" ] || { echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1; }
while [ $# -gt 0 ]; do
	case $1 in
	--jobs) cat "$FAKE_SLURM/job$2.state" 2>/dev/null || { echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1; }; exit ;;
	--name) name=$2; shift 2 ;;
	*) shift ;;
	esac
done
for file in "$FAKE_SLURM"/job*.name; do
	job=${file%.name}
	[ "$(cat "$file" 2>/dev/null)" = "$name" ] && grep -qE 'PENDING|RUNNING' "$job.state" && echo "${job##*job}"
done
exit 0
`
	fakeScancel = `#!/bin/sh
echo "scancel $*" >>"$FAKE_SLURM/calls"
echo CANCELLED >"$FAKE_SLURM/job$1.state.new" && mv "$FAKE_SLURM/job$1.state.new" "$FAKE_SLURM/job$1.state"
[ ! -e "$FAKE_SLURM/job$1.pid" ] || kill "$(cat "$FAKE_SLURM/job$1.pid")"
`
)

// workerVariable makes this test binary the worker of a job: the store, and a
// word that says how the worker is to behave.
const workerVariable = "GRAPH_TEST_WORKER"

// slurmWorld is a world whose steps are done in jobs.
type slurmWorld struct {
	*world
	fake string
}

func newSlurmWorld(t *testing.T) *slurmWorld {
	t.Helper()
	w := &slurmWorld{newWorld(t), quickDir(t)}
	for name, text := range map[string]string{"sbatch": fakeSbatch, "squeue": fakeSqueue, "scancel": fakeScancel} {
		if err := os.WriteFile(filepath.Join(w.fake, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w.put("last", "16")
	t.Setenv("FAKE_SLURM", w.fake)
	t.Setenv("PATH", w.fake+":"+os.Getenv("PATH"))
	return w
}

func (w *slurmWorld) put(name, text string) {
	w.t.Helper()
	if err := write(filepath.Join(w.fake, name), text); err != nil {
		w.t.Fatal(err)
	}
}

func (w *slurmWorld) calls() string {
	text, err := os.ReadFile(filepath.Join(w.fake, "calls"))
	if err != nil {
		return ""
	}
	return string(text)
}

func (w *slurmWorld) jobs() int { return strings.Count(w.calls(), "sbatch ") }

// slurmGraph is made by the test and by its workers alike.
func slurmGraph(input, behaviour, dir string) (*Graph, error) {
	note := func(name string) error { return appendTo(filepath.Join(dir, "began"), name+"\n") }
	return New(
		Step{Name: "a", Inputs: map[string]string{"text": input}, Resources: Resources{CPUs: 2, MemoryMiB: 512, Limit: 90 * time.Second},
			Run: func(_ context.Context, work *Work) error {
				return errors.Join(note("a"), write(filepath.Join(work.Dir, "text"), input))
			}},
		Step{Name: "b", Needs: map[string]string{"in": "a"}, Run: func(ctx context.Context, work *Work) error {
			text, err := os.ReadFile(filepath.Join(work.Need("in"), "text"))
			if err = errors.Join(note("b"), err, write(filepath.Join(work.Dir, "text"), string(text)+" and b")); err != nil {
				return err
			}
			work.Units(4, 9)
			work.Say("the job is here")
			switch behaviour {
			case "break":
				return detailedError{errBroken}
			case "die":
				os.Exit(9)
			case "wait":
				return waitFor(ctx, filepath.Join(dir, "gate"))
			}
			return nil
		}})
}

func beWorker(spec string) {
	words := strings.SplitN(spec, ",", 3)
	g, err := slurmGraph(words[0], words[1], words[2])
	if err == nil {
		ctx, stop := notifyContext()
		defer stop()
		err = Store{Dir: words[2]}.Work(ctx, os.Args[1], g)
	}
	if err != nil {
		_, _ = os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
	os.Exit(0)
}

// runSlurm runs the graph; the workers make one of another input when told.
func (w *slurmWorld) runSlurm(ctx context.Context, behaviour, theirs string) (map[string]Result, error) {
	g, err := slurmGraph("x", behaviour, w.store.Dir)
	if err != nil {
		w.t.Error(err)
	}
	r := w.runner()
	r.Slurm = &Slurm{
		Worker:    []string{"env", workerVariable + "=" + theirs + "," + behaviour + "," + w.store.Dir, os.Args[0]},
		Arguments: []string{"--partition", "its"},
		Poll:      10 * time.Millisecond, Grace: 100 * time.Millisecond,
	}
	return r.Run(ctx, "test", g)
}

func (w *slurmWorld) began() string {
	text, err := os.ReadFile(filepath.Join(w.store.Dir, "began"))
	if err != nil {
		return ""
	}
	return strings.Join(strings.Fields(string(text)), " ")
}

func (w *slurmWorld) saw(state State, step string) func() bool {
	return func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, e := range w.events {
			if e.State == state && e.Name == step {
				return true
			}
		}
		return false
	}
}

func TestSlurm(t *testing.T) {
	w := newSlurmWorld(t)
	results, err := w.runSlurm(t.Context(), "", "x")
	if err != nil {
		t.Fatal(err)
	}
	if text := read(t, filepath.Join(results["b"].Files(), "text")); text != "x and b" {
		t.Errorf("b is %q", text)
	}
	calls := strings.Split(w.calls(), "\n")
	for _, words := range []string{"--cpus-per-task 2", "--mem 512M", "--time 2", "--partition its", "--job-name kb-a-", "--requeue"} {
		if !strings.Contains(calls[0], words) {
			t.Errorf("sbatch was called with %s, without %s", calls[0], words)
		}
	}
	if step, _ := w.status().Step("b"); step.Job != "18" || step.State != Done || w.status().Where != "slurm" {
		t.Errorf("journal: %+v", w.status())
	}
	if _, err := w.runSlurm(t.Context(), "", "x"); err != nil || w.jobs() != 2 {
		t.Errorf("again: %d jobs, %v", w.jobs(), err)
	}
}

func TestSlurmFailures(t *testing.T) {
	for name, c := range map[string]struct {
		behaviour, theirs string
		before            func(w *slurmWorld)
		words             []string
	}{
		"the step fails":            {behaviour: "break", theirs: "x", words: []string{`step "b": it is broken`, "the job is here"}},
		"the job dies":              {behaviour: "die", theirs: "x", words: []string{`step "b": job 18 ended without a result (FAILED)`}},
		"the worker has other data": {theirs: "y", words: []string{`step "a": this machine has other inputs`, `text is "x" there, "y" here`}},
		"no job is taken": {theirs: "x", before: func(w *slurmWorld) { w.put("closed", "") },
			words: []string{`step "a": sbatch --parsable --job-name: exit status 1: sbatch: error: Batch job submission failed: Invalid partition`}},
		"slurmctld is away": {theirs: "x", before: func(w *slurmWorld) { w.put("away", "") },
			words: []string{`step "a": squeue --noheader --me: exit status 1: slurm_load_jobs error: Unable to contact`}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newSlurmWorld(t)
			if c.before != nil {
				c.before(w)
			}
			_, err := w.runSlurm(t.Context(), c.behaviour, c.theirs)
			var failed *StepError
			if !errors.As(err, &failed) {
				t.Fatalf("%v is no StepError", err)
			}
			// What the step's error has for programs comes out of the job.
			if got := string(failed.Detail); (got == `{"kernel":"k1"}`) != (c.behaviour == "break") {
				t.Errorf("detail %q", got)
			}
			for _, words := range c.words {
				if err == nil || !strings.Contains(err.Error(), words) {
					t.Errorf("%v, want %q", err, words)
				}
			}
			whole(t, w.store)
		})
	}
}

func TestSlurmCancels(t *testing.T) {
	for _, busy := range []bool{true, false} {
		w := newSlurmWorld(t)
		state := Running
		if busy {
			state = Queued
			w.put("busy", "")
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if _, err := w.runSlurm(ctx, "wait", "x"); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		step := map[bool]string{true: "a", false: "b"}[busy]
		until(t, step+" is "+string(state), w.saw(state, step))
		cancel()
		running.Wait()
		if !strings.Contains(w.calls(), "scancel 1") {
			t.Errorf("no scancel: %s", w.calls())
		}
		if got, _ := w.status().Step(step); got.State != Stopped {
			t.Errorf("%s is %s", step, got.State)
		}
		if busy {
			if err := os.Remove(filepath.Join(w.fake, "busy")); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A job goes on when the process that asked for it is gone, which here is one
// that gave up following it; the next run finds it and asks for no other.
func TestSlurmAdoptsAJob(t *testing.T) {
	w := newSlurmWorld(t)
	g, err := slurmGraph("x", "wait", w.store.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.runner().Run(t.Context(), "first", g, "a"); err != nil {
		t.Fatal(err)
	}
	// The job that a killed process left.
	result, err := w.store.Find("a", mustKey(t, g, "a", nil))
	if err != nil {
		t.Fatal(err)
	}
	step, _ := g.Step("b")
	needs := map[string]Result{"in": result}
	left := task{step: step, needs: needs, observe: func(update) {}, spot: w.store.spot("b", mustKey(t, g, "b", needs))}
	s := &Slurm{Worker: []string{"env", workerVariable + "=x,wait," + w.store.Dir, os.Args[0]}}
	job, err := s.submit(t.Context(), left)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the job works", func() bool { return w.began() == "a b" })
	var running sync.WaitGroup
	for range 2 { // and two runs at once ask for it
		running.Go(func() {
			results, err := w.runSlurm(t.Context(), "wait", "x")
			if err != nil || read(t, filepath.Join(results["b"].Files(), "text")) != "x and b" {
				t.Error(err)
			}
		})
	}
	until(t, "it is followed", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, e := range w.events {
			if e.Job == job && e.Done == 4 && e.Total == 9 {
				return true
			}
		}
		return false
	})
	if err := write(filepath.Join(w.store.Dir, "gate"), ""); err != nil {
		t.Fatal(err)
	}
	running.Wait()
	if w.jobs() != 1 || w.began() != "a b" {
		t.Errorf("%d jobs, began %s", w.jobs(), w.began())
	}
}

// The job of another cache leaves its result there, and would be waited for in vain.
func TestJobsOfTwoStores(t *testing.T) {
	named := func(dir, key string) string {
		return task{step: Step{Kind: "a"}, spot: Store{Dir: dir}.spot("a", key)}.jobName()
	}
	one, other := strings.Repeat("1", 64), strings.Repeat("2", 64)
	if name := named("/cache", one); name == named("/other", one) || name == named("/cache", other) || name != named("/cache", one) {
		t.Errorf("job %s", name)
	}
}

func mustKey(t *testing.T, g *Graph, name string, needs map[string]Result) string {
	t.Helper()
	step, _ := g.Step(name)
	key, err := key(&step, needs)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestTimeOfJobs(t *testing.T) {
	for _, state := range []string{"", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"} {
		if !hasEnded(state) {
			t.Errorf("%q goes on", state)
		}
	}
	for _, state := range []string{"PENDING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUED"} {
		if hasEnded(state) {
			t.Errorf("%q has ended", state)
		}
	}
	if got := string(script([]string{"a", "it's"})); got != "#!/bin/sh\nexec 'a' 'it'\\''s'\n" {
		t.Errorf("%q", got)
	}
	if err := (&JobError{Job: strconv.Itoa(7)}); !strings.Contains(err.Error(), "Slurm knows it no more") {
		t.Error(err)
	}
}
