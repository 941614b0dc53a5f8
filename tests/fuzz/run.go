package fuzz

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Options of a run.
type Options struct {
	// Root of the repository, Corpus and Work folders, which hold the archives
	// and what is made on the way.
	Root, Corpus, Work string
	// Time that each target is to have, by this clock. By that of a processor it
	// takes as long as it needs on a busy machine.
	Time  time.Duration
	Clock Clock
	// Missing: what targets have had with the same code counts.
	Missing bool
	// AtOnce is how many targets run side by side, Processors how many each may
	// use; 0 for all.
	AtOnce, Processors int
	// Go is the go command, Commit what is checked out.
	Go, Commit string
	// Log gets progress.
	Log io.Writer
}

// Result of one target.
type Result struct {
	Target
	// Seconds passed, of which it had Processor.
	Seconds   float64 `json:"seconds"`
	Processor float64 `json:"processor_seconds"`
	Execs     uint64  `json:"execs"`
	// New inputs were interesting; Kept are in the archive.
	New  int `json:"new"`
	Kept int `json:"kept"`
	// Quiet are the last of the seconds, in which nothing new was found.
	Quiet float64 `json:"quiet_seconds"`
	found time.Time
	// Failed says what was found wrong, and Input where what shows it is.
	Failed string `json:"failed,omitempty"`
	Input  string `json:"input,omitempty"`
	// Broke says what ended the run early though no input shows it.
	Broke string `json:"broke,omitempty"`
}

// plus is what a target had before and in one run more.
func (r Result) plus(one Result) Result {
	one.Quiet = quiet(r.Quiet, one)
	one.Seconds, one.Processor, one.Execs, one.New = one.Seconds+r.Seconds, one.Processor+r.Processor, one.Execs+r.Execs, one.New+r.New
	if one.Broke == "" {
		one.Broke = r.Broke
	}
	return one
}

// ledgerFile is in the corpus.
const ledgerFile = "ledger.json"

// shortest is the least that a run is worth its start.
const shortest = 10 * time.Second

// Ledger reads what the targets have had.
func (o Options) Ledger() (Ledger, error) { return ReadLedger(filepath.Join(o.Corpus, ledgerFile)) }

// slice is how long a target runs before what it had is written down: not more
// is lost when everything is killed.
const slice = 5 * time.Minute

// tries is how often in a row a target may break off before the next has its turn.
const tries = 3

// runner is one run over many targets.
type runner struct {
	Options
	builds programs

	lock    sync.Mutex
	waiting []Target
	total   int
	codes   map[string]string
	ledger  Ledger
	results []Result
	broken  error
}

// Run runs the targets in turn, and writes what each has had into the ledger on
// the way. What a target finds is in its result; an error is something that kept
// targets from running. When ctx ends so do the targets that run, and what they
// had counts.
func Run(ctx context.Context, o Options, targets []Target, codes map[string]string) ([]Result, error) {
	ledger, err := o.Ledger()
	if err != nil {
		return nil, err
	}
	o.Log = &together{to: o.Log}
	r := &runner{Options: o, builds: programs{targets: targets}, waiting: targets, total: len(targets), codes: maps.Clone(codes), ledger: ledger}
	var all sync.WaitGroup
	for range max(1, o.AtOnce) {
		all.Go(func() {
			for t, more := r.take(ctx); more; t, more = r.take(ctx) {
				r.target(ctx, t)
			}
		})
	}
	all.Wait()
	return r.results, r.broken
}

// take returns the next target that needs to run.
func (r *runner) take(ctx context.Context) (Target, bool) {
	r.lock.Lock()
	defer r.lock.Unlock()
	for len(r.waiting) > 0 && ctx.Err() == nil && r.broken == nil {
		t := r.waiting[0]
		r.waiting = r.waiting[1:]
		if need := r.need(Result{Target: t}); need > 0 {
			_, _ = fmt.Fprintf(r.Log, "[%d/%d] %s for %v\n", r.total-len(r.waiting), r.total, t, need)
			return t, true
		}
	}
	return Target{}, false
}

// passing is how long a target runs to get what it needs, if it gets as much of
// the processor as it has had: each start costs some of it.
func (c Clock) passing(need time.Duration, so Result) time.Duration {
	share := 1.
	if c == Processor {
		share = max(share, so.Seconds/max(so.Processor, 0.1))
	}
	return max(time.Duration(min(float64(need)*share, float64(slice))).Round(time.Second), shortest)
}

// needOf is what a target needs with the code that it was built of.
func (r *runner) needOf(so Result, made program) time.Duration {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.codes[so.String()] = made.codes[so.String()]
	return r.need(so)
}

// need is what a target still lacks that had so much in this run.
func (r *runner) need(so Result) time.Duration {
	if r.Missing {
		return r.ledger.Missing(so.Target, r.codes[so.String()], r.Time, r.Clock)
	}
	return max(0, r.Time-r.Clock.had(so.Seconds, so.Processor))
}

// target runs one until it has had its time, or found something.
func (r *runner) target(ctx context.Context, t Target) {
	sum := Result{Target: t}
	made, err := r.builds.get(ctx, r.Options, t)
	for broke := 0; err == nil && broke < tries && sum.Failed == "" && ctx.Err() == nil; {
		need := r.needOf(sum, made)
		if need == 0 {
			break
		}
		var one Result
		if one, err = r.one(ctx, t, r.Clock.passing(need, sum), made.path); err != nil {
			break
		}
		if words := one.words(); words != "" {
			_, _ = fmt.Fprintf(r.Log, "%s: %s\n", t, words)
		}
		if broke++; one.Broke == "" {
			broke = 0
		}
		sum = sum.plus(one)
		err = r.record(one, made.codes[t.String()])
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	if sum.Seconds > 0 {
		r.results = append(r.results, sum)
	}
	if err != nil && ctx.Err() == nil {
		r.broken = errors.Join(r.broken, fmt.Errorf("%s: %w", t, err))
	}
}

// record writes down what a target had, with the code that it was built of.
func (r *runner) record(one Result, code string) error {
	r.lock.Lock()
	defer r.lock.Unlock()
	ledger, err := update(filepath.Join(r.Corpus, ledgerFile), func(l Ledger) { l.add(one, code, r.Commit, time.Now()) })
	if err == nil {
		r.ledger = ledger
	}
	return err
}

// together writes lines of many one after another.
type together struct {
	lock sync.Mutex
	to   io.Writer
}

func (w *together) Write(p []byte) (int, error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.to.Write(p)
}

func (o Options) arguments(t Target, need time.Duration, cache string) []string {
	args := []string{
		"-test.run=^$", "-test.fuzz=^" + t.Name + "$", "-test.fuzztime=" + need.String(), "-test.fuzzcachedir=" + cache,
		// By default an input that is interesting is made smaller for a minute. A new
		// corpus has hundreds: with only seconds for each, a tenth of the executions
		// were left for finding more.
		"-test.fuzzminimizetime=1000x", "-test.timeout=0", "-test.paniconexit0",
	}
	if o.Processors > 0 {
		args = append(args, "-test.parallel="+strconv.Itoa(o.Processors))
	}
	return args
}

// inMemory is where targets that write files have them, far quicker than a disk.
const inMemory = "/dev/shm"

func memory() bool {
	info, err := os.Stat(inMemory)
	return err == nil && info.IsDir()
}

// ended is what a target gets to end by itself, after its time.
const ended = 5 * time.Minute

func (o Options) one(ctx context.Context, t Target, need time.Duration, program string) (Result, error) {
	r := Result{Target: t}
	cache := filepath.Join(o.Work, "cache", t.Package)
	corpus := filepath.Join(cache, t.Name)
	archive := filepath.Join(o.Corpus, t.Package, t.Name+".tar.gz")
	err := errors.Join(os.MkdirAll(corpus, 0o750), restore(archive, corpus))
	if err != nil {
		return r, err
	}
	limited, cancel := context.WithTimeout(ctx, need+ended)
	defer cancel()
	args := o.argumentsC(t, need, corpus)
	if !t.inC() {
		args = o.arguments(t, need, cache)
	}
	env := os.Environ()
	if _, set := os.LookupEnv("TMPDIR"); !set && memory() {
		env = append(env, "TMPDIR="+inMemory)
	}
	if o.Processors > 0 {
		env = append(env, "GOMAXPROCS="+strconv.Itoa(o.Processors))
	}
	cmd := exec.CommandContext(limited, program, args...)
	cmd.Dir, cmd.Env = filepath.Join(o.Root, t.Package), env
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	out, err := cmd.StdoutPipe()
	if err != nil {
		return r, err
	}
	cmd.Stderr = cmd.Stdout
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return r, err
	}
	r.found = begin
	said := r.read(out, o.Root, o.Log)
	failure := cmd.Wait()
	r.Seconds = time.Since(begin).Seconds()
	r.Quiet = time.Since(r.found).Seconds()
	// Of all its workers, too: it waits for them.
	r.Processor = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	var exit *exec.ExitError
	switch {
	case failure == nil, ctx.Err() != nil:
	case errors.Is(limited.Err(), context.DeadlineExceeded):
		r.Broke = fmt.Sprintf("did not end within %v of its time: %s", ended, said)
	case !errors.As(failure, &exit):
		return r, failure
	case r.Input == "":
		r.Broke = said
	default:
		if err := o.again(ctx, &r, program, said, corpus); err != nil {
			return r, err
		}
	}
	r.Kept, err = keep(corpus, archive)
	return r, err
}

// again runs the input that a target failed on by itself. Go takes a target that
// got no processor for ten seconds for one that hangs: an input that passes now
// shows nothing, and is as good as any other of the corpus.
func (o Options) again(ctx context.Context, r *Result, program, said, corpus string) error {
	args := []string{"-test.run=^" + r.Name + "$/^" + filepath.Base(r.Input) + "$"}
	if r.inC() {
		args = []string{filepath.Join(o.Root, r.Input)}
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = filepath.Join(o.Root, r.Package)
	if out, err := cmd.CombinedOutput(); err != nil {
		r.Failed = said + "\n" + strings.TrimSpace(string(out))
		return nil
	}
	path := filepath.Join(o.Root, r.Input)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	r.Broke, r.Input = said+"\n(it does not fail again)", ""
	return errors.Join(os.WriteFile(filepath.Join(corpus, digestIn(path)), text, 0o600), os.Remove(path))
}

// digestIn is the name of an input without what libFuzzer puts before it.
func digestIn(path string) string {
	name := filepath.Base(path)
	return name[strings.LastIndex(name, "-")+1:]
}

func (r Result) words() string { return r.Failed + r.Broke }

var (
	progress = regexp.MustCompile(`^fuzz: elapsed: \S+, execs: (\d+) .*new interesting: (\d+)`)
	written  = regexp.MustCompile(`Failing input written to (\S+)`)
)

// read follows what a target says, and returns the end of what is no progress.
func (r *Result) read(out io.Reader, root string, log io.Writer) string {
	const most = 4000
	said := ""
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		line := lines.Text()
		if m := progress.FindStringSubmatch(line); m != nil {
			r.Execs, _ = strconv.ParseUint(m[1], 10, 64)
			if found, _ := strconv.Atoi(m[2]); found > r.New {
				r.New, r.found = found, time.Now()
			}
			_, _ = fmt.Fprintln(log, "    "+r.String()+": "+strings.TrimPrefix(line, "fuzz: "))
			continue
		}
		if r.inC() && r.readC(line, root) {
			continue
		}
		if m := written.FindStringSubmatch(line); m != nil {
			r.Input = filepath.ToSlash(filepath.Join(r.Package, m[1]))
		}
		if strings.HasPrefix(line, "fuzz: ") || line == "PASS" {
			continue
		}
		if said += line + "\n"; len(said) > most {
			said = said[len(said)-most:]
		}
	}
	return strings.TrimSpace(said)
}
