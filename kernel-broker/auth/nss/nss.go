// SPDX-License-Identifier: Apache-2.0

// Package nss looks users up in the name service of the broker's host.
//
// Without cgo, Go reads /etc/passwd and /etc/group only, and many sites use LDAP.
// So getent and id are run, which use the same name service as Slurm. Answers are
// kept for a minute, lookups of the same user are shared, and few run at a time:
// every caller of the broker causes one, on slurmctld's host.
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
	"time"

	"golang.org/x/sync/semaphore"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/cache"
)

const (
	// lookupLimit is for one lookup, with the wait for its turn.
	lookupLimit = 10 * time.Second
	// ofJobs and ofOthers are how many lookups run at a time.
	ofJobs, ofOthers = 2, 4
	// keep is how long an answer is kept, and keepNone how long "not found" is:
	// getent says that, too, while the name service is away.
	keep     = time.Minute
	keepNone = 3 * time.Second
	// notFound is getent's exit code for a key that it does not have.
	notFound = 2
)

// Directory looks users up. Safe for concurrent use.
type Directory struct {
	cache.Cache[query, kb.User]
	getent, id   string
	limit        time.Duration
	jobs, others *semaphore.Weighted
}

// query is what lookups are shared for. A job's never waits for another caller's
// turn.
type query struct {
	key   string
	ofJob bool
}

type jobKey struct{}

// ForJob marks lookups that decide whether a job gets its kernel. They have turns
// of their own.
func ForJob(ctx context.Context) context.Context { return context.WithValue(ctx, jobKey{}, true) }

// New returns a directory that runs getent and id, as PATH finds them.
func New() *Directory {
	return &Directory{getent: "getent", id: "id", limit: lookupLimit, jobs: semaphore.NewWeighted(ofJobs), others: semaphore.NewWeighted(ofOthers)}
}

// ByUID returns a user. The error is ErrNotFound for a uid without a name, and
// ErrUnavailable when the lookup fails. While LDAP is away getent may report "not
// found": a caller that knows of such a user must not take that for final.
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
	if !canBeName(name) || strings.Contains(name, " ") {
		return kb.User{}, fmt.Errorf("user %q: no user can have that name: %w", name, kb.ErrInvalid)
	}
	return d.cached(ctx, name)
}

// canBeName is of users and groups; groups of Windows domains have blanks.
func canBeName(name string) bool {
	return name != "" && len(name) <= 256 && !strings.HasPrefix(name, "-") &&
		!strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c == 0x7f || c == ':' || c == ',' })
}

// Group returns a group's name as the host has it. Errors are those of ByName.
func (d *Directory) Group(ctx context.Context, name string) (string, error) {
	if !canBeName(name) {
		return "", fmt.Errorf("group %q: no group can have that name: %w", name, kb.ErrInvalid)
	}
	ctx, cancel := context.WithTimeout(ctx, d.limit)
	defer cancel()
	if d.others.Acquire(ctx, 1) != nil {
		return "", fmt.Errorf("group %q: too many other lookups on the broker's host, none free within %v: %w", name, d.limit, kb.ErrUnavailable)
	}
	defer d.others.Release(1)
	line, exit, err := run(ctx, d.getent, "group", name)
	if err == nil && exit == notFound {
		return "", fmt.Errorf("group %q: the host knows none: %w", name, kb.ErrNotFound)
	}
	has, _, whole := strings.Cut(string(line), ":")
	switch {
	case err != nil:
	case exit != 0:
		err = fmt.Errorf("getent ended with %d", exit)
	case !whole || has == "":
		err = fmt.Errorf("getent printed %.80q", line)
	}
	if err != nil {
		return "", fmt.Errorf("group %q: %w: %w", name, kb.ErrUnavailable, err)
	}
	return has, nil
}

func (d *Directory) cached(ctx context.Context, key string) (kb.User, error) {
	q := query{key: key, ofJob: ctx.Value(jobKey{}) != nil}
	p, err := d.Get(ctx, q, func(ctx context.Context) (kb.User, time.Duration, error) {
		p, err := d.lookup(ctx, q)
		switch {
		case err == nil:
			return p, keep, nil
		case errors.Is(err, kb.ErrUnavailable):
			return p, 0, err
		}
		return p, keepNone, err
	})
	if err != nil && !errors.Is(err, kb.ErrNotFound) && !errors.Is(err, kb.ErrUnavailable) {
		err = fmt.Errorf("user %q: %w: %w", key, kb.ErrUnavailable, err) // the caller has left
	}
	return p, err
}

// lookup asks the host when it is the query's turn.
func (d *Directory) lookup(ctx context.Context, q query) (kb.User, error) {
	ctx, cancel := context.WithTimeout(ctx, d.limit)
	defer cancel()
	turns := d.others
	if q.ofJob {
		turns = d.jobs
	}
	if turns.Acquire(ctx, 1) != nil {
		return kb.User{}, fmt.Errorf("user %q: too many other lookups on the broker's host, none free within %v: %w", q.key, d.limit, kb.ErrUnavailable)
	}
	defer turns.Release(1)
	return d.ask(ctx, q.key)
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
