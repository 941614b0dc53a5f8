// SPDX-License-Identifier: Apache-2.0

// Package nss knows users and groups as the broker's host does.
//
// Without cgo, Go reads /etc/passwd and /etc/group alone, and sites keep their
// people in LDAP. So getent and id are asked, which go through the host's name
// service as Slurm does. Each answer is kept for a while: a question is two
// processes, and most come from the same few people. A few are asked at a time,
// and none of those twice: whoever calls the broker causes one, and its host is
// slurmctld's.
package nss

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/limit"
)

const (
	// defaultPatience is for one question, the wait for its turn included.
	defaultPatience = 10 * time.Second
	// atATime questions are under way at most, and ofOthers that are no jobs'. Each
	// is one process.
	atATime, ofOthers = 6, 4
	// keep is how long an answer holds, and keepNone how long it holds that there
	// is nobody: getent says so, too, while the name service is away.
	keep     = time.Minute
	keepNone = 3 * time.Second
	// mostKept answers; more is somebody who tries all uids.
	mostKept = 10_000
	// notFound is how getent ends for a key that it does not have.
	notFound = 2
)

// Directory asks the host. Safe for concurrent use.
type Directory struct {
	getent, id string
	now        func() time.Time
	patience   time.Duration
	turns      *limit.Turns
	flights    limit.Flights[question, kb.User]

	mu   sync.Mutex
	kept map[string]answer
	// forgot counts how often answers were dropped: one that was under way then
	// is not kept.
	forgot uint64
}

// question is what answers are shared for. A job's is not a stranger's, which may
// wait for its turn, nor is one from before all answers were dropped.
type question struct {
	key    string
	ofJob  bool
	forgot uint64
}

// who stands in line for a turn: all strangers in one, each job's user in his own.
func (q question) who() string {
	if q.ofJob {
		return "user of a job, " + q.key
	}
	return "others"
}

type jobKey struct{}

// ForJob is for a question on which it hangs whether a job gets its kernel: it
// waits behind nobody else's.
func ForJob(ctx context.Context) context.Context { return context.WithValue(ctx, jobKey{}, true) }

type answer struct {
	person kb.User
	err    error
	until  time.Time
}

// New returns a directory that runs getent and id, as PATH finds them.
func New() *Directory {
	return &Directory{getent: "getent", id: "id", now: time.Now, patience: defaultPatience, turns: limit.NewTurns(atATime, ofOthers), kept: map[string]answer{}}
}

// Forget drops all answers that are kept, and those that are under way: they are
// from before.
func (d *Directory) Forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.kept)
	d.forgot++
}

// ByUID returns a user. One without a name is kernelbroker.ErrNotFound; when the
// host cannot say it is kernelbroker.ErrUnavailable. Some hosts cannot say that
// they cannot say: getent ends the same where LDAP is away. Who knows from
// elsewhere that there is such a user must not take that for a no.
func (d *Directory) ByUID(ctx context.Context, uid uint32) (kb.User, error) {
	key := strconv.FormatUint(uint64(uid), 10)
	p, err := d.cached(ctx, key)
	if err == nil && p.UID != uid {
		return kb.User{}, fmt.Errorf("uid %d: the host answers with uid %d: %w", uid, p.UID, kb.ErrUnavailable)
	}
	return p, err
}

// ByName returns a user by name or by a number that is a uid. Errors are those
// of ByUID.
func (d *Directory) ByName(ctx context.Context, name string) (kb.User, error) {
	if name == "" || len(name) > 256 || strings.HasPrefix(name, "-") ||
		strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c == 0x7f || c == ':' || c == ',' }) {
		return kb.User{}, fmt.Errorf("user %q: no user can have that name: %w", name, kb.ErrInvalid)
	}
	return d.cached(ctx, name)
}

func (d *Directory) cached(ctx context.Context, key string) (kb.User, error) {
	a, forgot, has := d.look(key)
	if has {
		return a.person, a.err
	}
	q := question{key: key, forgot: forgot, ofJob: ctx.Value(jobKey{}) != nil}
	p, err := d.flights.Do(ctx, q, func(ctx context.Context) (kb.User, error) { return d.answer(ctx, q) })
	if err != nil && !errors.Is(err, kb.ErrNotFound) && !errors.Is(err, kb.ErrUnavailable) {
		err = fmt.Errorf("user %q: %w: %w", key, kb.ErrUnavailable, err) // who asked has left
	}
	return p, err
}

// look returns the answer that is kept.
func (d *Directory) look(key string) (a answer, forgot uint64, has bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, has = d.kept[key]
	return a, d.forgot, has && d.now().Before(a.until)
}

// answer asks the host when it is the question's turn.
func (d *Directory) answer(ctx context.Context, q question) (kb.User, error) {
	if a, _, has := d.look(q.key); has {
		return a.person, a.err // it came in the meantime
	}
	ctx, cancel := context.WithTimeout(ctx, d.patience)
	defer cancel()
	free, err := d.turns.Take(ctx, q.who())
	if err != nil {
		return kb.User{}, fmt.Errorf("user %q: the host is asked for so many others that this one had no turn within %v: %w", q.key, d.patience, kb.ErrUnavailable)
	}
	defer free()
	p, err := d.ask(ctx, q.key)
	if !errors.Is(err, kb.ErrUnavailable) {
		d.keep(q, p, err)
	}
	return p, err
}

func (d *Directory) keep(q question, p kb.User, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.forgot != q.forgot {
		return
	}
	if len(d.kept) >= mostKept {
		clear(d.kept)
	}
	hold := keep
	if err != nil {
		hold = keepNone
	}
	d.kept[q.key] = answer{p, err, d.now().Add(hold)}
}

func (d *Directory) ask(ctx context.Context, key string) (kb.User, error) {
	line, exit, err := run(ctx, d.getent, "passwd", key)
	switch {
	case err == nil && exit == notFound:
		return kb.User{}, fmt.Errorf("user %q: the host knows none: %w", key, kb.ErrNotFound)
	case err == nil && exit != 0:
		err = fmt.Errorf("getent ended with %d", exit)
	}
	var p kb.User
	if err == nil {
		p, err = parsePasswd(line)
	}
	var groups []byte
	if err == nil {
		// It ends with 1 when a group has no name, and prints its number.
		groups, exit, err = run(ctx, d.id, "-z", "-G", "-n", "--", p.Name)
	}
	if err == nil && (exit > 1 || len(groups) == 0) {
		err = fmt.Errorf("id ended with %d", exit)
	}
	if err != nil {
		return kb.User{}, fmt.Errorf("user %q: %w: %w", key, kb.ErrUnavailable, err)
	}
	p.Groups = strings.Split(strings.TrimRight(string(groups), "\x00"), "\x00")
	return p, nil
}

// parsePasswd reads what getent prints of one user.
func parsePasswd(text []byte) (kb.User, error) {
	line, rest, _ := bytes.Cut(text, []byte("\n"))
	fields := strings.Split(string(line), ":")
	if len(fields) != 7 || fields[0] == "" || len(rest) > 0 {
		return kb.User{}, fmt.Errorf("getent printed %.80q", text)
	}
	uid, err := strconv.ParseUint(fields[2], 10, 32)
	if err != nil {
		return kb.User{}, fmt.Errorf("getent printed %.80q", text)
	}
	return kb.User{UID: uint32(uid), Name: fields[0]}, nil
}

func run(ctx context.Context, program string, args ...string) (out []byte, exit int, err error) {
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // G204: getent or id, no shell; a name is checked and stands behind a --
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.WaitDelay = time.Second
	out, err = cmd.Output()
	var ended *exec.ExitError
	if errors.As(err, &ended) && ctx.Err() == nil && ended.Exited() {
		return out, ended.ExitCode(), nil
	}
	return out, 0, err
}
