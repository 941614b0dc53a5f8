// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
	"testing/iotest"
)

func wantOffsets(t *testing.T, s *source, want ...int64) {
	t.Helper()
	if fmt.Sprint(s.offsets) != fmt.Sprint(want) {
		t.Errorf("fetched at %v, want %v", s.offsets, want)
	}
}

func TestInterruptedDownloadResumes(t *testing.T) {
	root := t.TempDir()
	c := openCache(t, root, 1000)
	s := newSource(500)
	s.cut = 100
	if err := s.ensure(t, c); !errors.Is(err, ErrTruncated) {
		t.Fatalf("first = %v", err)
	}
	if used(t, c) != 100 {
		t.Errorf("Used = %d, want 100", used(t, c))
	}
	s.err = io.ErrUnexpectedEOF // the source is away
	if err := s.ensure(t, c); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("second = %v", err)
	}
	s.cut = 200
	if err := s.ensure(t, c); !errors.Is(err, ErrTruncated) {
		t.Fatalf("third = %v", err)
	}
	if _, err := os.Stat(c.Path(s.digest)); !os.IsNotExist(err) {
		t.Fatalf("half an artifact is under its name: %v", err)
	}
	// A restart does not lose it.
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	c = openCache(t, root, 1000)
	if used(t, c) != 300 {
		t.Errorf("Used after a restart = %d, want 300", used(t, c))
	}
	s.mustEnsure(t, c)
	wantOffsets(t, s, 0, 100, 100, 300)
	wantCached(t, c, s)
	if have := files(t, root); len(have) != 1 {
		t.Errorf("files %v", have)
	}
}

func TestReadErrorKeepsPartialDownload(t *testing.T) {
	c := openCache(t, t.TempDir(), 1000)
	s := newSource(500)
	reset := errors.New("connection reset")
	_, err := c.Ensure(t.Context(), s.digest, 500, func(context.Context, int64) (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(bytes.NewReader(s.content[:123]), iotest.ErrReader(reset))), nil
	})
	if !errors.Is(err, reset) {
		t.Fatalf("Ensure = %v", err)
	}
	s.mustEnsure(t, c)
	wantOffsets(t, s, 123)
}

func TestSourceThatCannotResume(t *testing.T) {
	c := openCache(t, t.TempDir(), 1000)
	s := newSource(500)
	s.cut = 100
	if err := s.ensure(t, c); !errors.Is(err, ErrTruncated) {
		t.Fatal(err)
	}
	s.err = ErrNoResume
	s.mustEnsure(t, c)
	wantOffsets(t, s, 0, 100, 0)

	other := newSource(10)
	other.err = ErrNoResume // at 0 it is an error like any other
	if err := other.ensure(t, c); !errors.Is(err, ErrNoResume) {
		t.Errorf("Ensure = %v", err)
	}
	wantOffsets(t, other, 0)
}

// TestDamagedPartialRestarts: a crash can leave anything in a file that was
// being written.
func TestDamagedPartialRestarts(t *testing.T) {
	for name, left := range map[string]func(content []byte) []byte{
		"zeros":     func([]byte) []byte { return make([]byte, 100) },
		"complete":  func([]byte) []byte { return make([]byte, 500) },
		"too long":  func([]byte) []byte { return make([]byte, 501) },
		"one bit":   func(content []byte) []byte { return append([]byte{content[0] ^ 1}, content[1:200]...) },
		"all right": func(content []byte) []byte { return content },
	} {
		t.Run(name, func(t *testing.T) {
			c := openCache(t, t.TempDir(), 1000)
			s := newSource(500)
			if err := os.WriteFile(c.dir.partialPath(s.digest), left(s.content), 0o600); err != nil {
				t.Fatal(err)
			}
			s.mustEnsure(t, c)
			wantCached(t, c, s)
			if name == "all right" {
				wantOffsets(t, s) // nothing was missing
			} else if last := len(s.offsets) - 1; last < 0 || s.offsets[last] != 0 {
				t.Errorf("fetched at %v, the last must be 0", s.offsets)
			}
		})
	}
}

// TestPartialsAreRemovedFirst: a broken download must not push an artifact out.
func TestPartialsAreRemovedFirst(t *testing.T) {
	c := openCache(t, t.TempDir(), 300)
	kept, broken, wanted := newSource(150), newSource(140), newSource(130)
	kept.mustEnsure(t, c)
	broken.cut = 100
	if err := broken.ensure(t, c); !errors.Is(err, ErrTruncated) {
		t.Fatal(err)
	}
	wanted.mustEnsure(t, c)
	wantCached(t, c, kept, wanted)
	if have := files(t, c.dir.root); len(have) != 2 {
		t.Errorf("files %v", have)
	}
}

// waitingContext reports when a call starts to wait for it, which Ensure does only while it waits for another call.
type waitingContext struct {
	context.Context
	once    *sync.Once
	waiting chan struct{}
}

func newWaitingContext(ctx context.Context) waitingContext {
	return waitingContext{ctx, new(sync.Once), make(chan struct{})}
}

func (w waitingContext) Done() <-chan struct{} {
	w.once.Do(func() { close(w.waiting) })
	return w.Context.Done()
}

// pair is a call of Ensure that fetches and another that waits for it.
type pair struct {
	body           *io.PipeWriter // input of the first call
	leader, waiter chan error
	cancelLeader   context.CancelFunc
	cancelWaiter   context.CancelFunc
}

func startPair(t *testing.T, c *Cache, s *source) pair {
	t.Helper()
	reader, writer := io.Pipe()
	p := pair{body: writer, leader: make(chan error, 1), waiter: make(chan error, 1)}
	var leaderCtx, waiterCtx context.Context
	leaderCtx, p.cancelLeader = context.WithCancel(t.Context())
	waiterCtx, p.cancelWaiter = context.WithCancel(t.Context())
	began := make(chan struct{})
	go func() {
		_, err := c.Ensure(leaderCtx, s.digest, int64(len(s.content)), func(context.Context, int64) (io.ReadCloser, error) {
			close(began)
			return reader, nil
		})
		p.leader <- err
	}()
	<-began
	waiting := newWaitingContext(waiterCtx)
	go func() {
		_, err := c.Ensure(waiting, s.digest, int64(len(s.content)), s.fetch)
		p.waiter <- err
	}()
	<-waiting.waiting
	t.Cleanup(p.cancelLeader)
	t.Cleanup(p.cancelWaiter)
	return p
}

// TestWaiterOutlivesLeader: if the fetching call is cancelled, a waiting call resumes the download instead of failing.
func TestWaiterOutlivesLeader(t *testing.T) {
	c := openCache(t, t.TempDir(), 1000)
	s := newSource(500)
	p := startPair(t, c, s)
	if _, err := p.body.Write(s.content[:60]); err != nil {
		t.Fatal(err)
	}
	p.cancelLeader()
	if err := p.body.CloseWithError(context.Canceled); err != nil {
		t.Fatal(err)
	}
	if err := <-p.leader; !errors.Is(err, context.Canceled) {
		t.Errorf("leader = %v", err)
	}
	if err := <-p.waiter; err != nil {
		t.Errorf("waiter = %v", err)
	}
	wantOffsets(t, s, 60)
	wantCached(t, c, s)
}

// TestWaiterGivesUp: a cancelled call does not wait for another call's download.
func TestWaiterGivesUp(t *testing.T) {
	c := openCache(t, t.TempDir(), 1000)
	s := newSource(500)
	p := startPair(t, c, s)
	p.cancelWaiter()
	if err := <-p.waiter; !errors.Is(err, context.Canceled) {
		t.Errorf("waiter = %v", err)
	}
	if _, err := p.body.Write(s.content); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.body.Close(), <-p.leader); err != nil {
		t.Errorf("leader = %v", err)
	}
	wantOffsets(t, s)
}

// A failed call leaves the download to the one that waits for it.
func TestWaiterTriesAfterAFailure(t *testing.T) {
	c := openCache(t, t.TempDir(), 1000)
	s := newSource(500)
	p := startPair(t, c, s)
	gone := errors.New("gone")
	if err := p.body.CloseWithError(gone); err != nil {
		t.Fatal(err)
	}
	if err := <-p.leader; !errors.Is(err, gone) {
		t.Errorf("leader = %v", err)
	}
	if err := <-p.waiter; err != nil {
		t.Errorf("waiter = %v", err)
	}
	wantOffsets(t, s, 0)
	wantCached(t, c, s)
}
