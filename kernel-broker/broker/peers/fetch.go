// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

const (
	// tries of one transfer, each from where the one before ended.
	tries = 4
	// stallLimit is for how long a peer may send nothing.
	stallLimit = 30 * time.Second
	pause      = time.Second
	// mostList bounds the answer that lists artifacts: some 100,000.
	mostList = 8 << 20
)

// from stores an artifact that a peer gives.
func (e *Exchange) from(ctx context.Context, p Peer, digest string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t := &transfer{ctx: ctx, client: e.client, url: artifactURL(p, digest), pause: pause}
	t.stalled = time.AfterFunc(stallLimit, func() { cancel(fmt.Errorf("it sent nothing for %v: %w", stallLimit, kb.ErrUnavailable)) })
	defer t.close()
	if err := t.open(); err != nil {
		return err
	}
	if uint64(t.size) > e.o.MostBytes {
		return fmt.Errorf("it has %d bytes, at most %d are allowed (max_artifact_bytes): %w", t.size, e.o.MostBytes, kb.ErrExhausted)
	}
	_, err := e.Put(ctx, digest, uint64(t.size), t)
	return err
}

func artifactURL(p Peer, digest string) string {
	return "https://" + p.Address + artifactsPath + digest
}

// transfer reads an artifact, and goes on where a connection broke.
type transfer struct {
	ctx     context.Context
	client  *http.Client
	url     string
	pause   time.Duration
	stalled *time.Timer

	size, offset int64
	tried        int
	body         io.ReadCloser
}

// open asks for what is left.
func (t *transfer) open() error {
	t.tried++
	request, err := http.NewRequestWithContext(t.ctx, http.MethodGet, t.url, nil)
	if err != nil {
		return err
	}
	want := http.StatusOK
	if t.offset > 0 {
		want = http.StatusPartialContent
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", t.offset))
	}
	answer, err := t.client.Do(request)
	if err != nil {
		return fmt.Errorf("%w: %w", kb.ErrUnavailable, cause(t.ctx, err))
	}
	switch left := answer.ContentLength; {
	case answer.StatusCode == http.StatusNotFound:
		err = kb.ErrNotFound
	case answer.StatusCode != want || left < 0:
		err = fmt.Errorf("it answers %s: %w", answer.Status, kb.ErrUnavailable)
	case t.offset > 0 && (t.offset+left != t.size || answer.Header.Get("Content-Range") != fmt.Sprintf("bytes %d-%d/%d", t.offset, t.size-1, t.size)):
		err = fmt.Errorf("it goes on with other bytes than asked for: %w", kb.ErrInvalid)
	default:
		t.size, t.body = t.offset+left, answer.Body
		t.stalled.Reset(stallLimit)
		return nil
	}
	return errors.Join(err, answer.Body.Close())
}

// Read implements io.Reader.
func (t *transfer) Read(p []byte) (int, error) {
	for {
		if t.body == nil {
			if err := t.wait(); err != nil {
				return 0, err
			}
			if err := t.open(); err != nil {
				if t.tried >= tries || !errors.Is(err, kb.ErrUnavailable) {
					return 0, err
				}
				continue
			}
		}
		n, err := t.body.Read(p)
		t.offset += int64(n)
		if n > 0 {
			t.stalled.Reset(stallLimit)
		}
		if err == nil || t.offset >= t.size && errors.Is(err, io.EOF) {
			return n, err
		}
		t.close()
		if t.tried >= tries {
			return n, fmt.Errorf("after %d of %d bytes: %w: %w", t.offset, t.size, kb.ErrUnavailable, cause(t.ctx, err))
		}
		if n > 0 {
			return n, nil
		}
	}
}

// wait lets a peer that restarts come back.
func (t *transfer) wait() error {
	select {
	case <-t.ctx.Done():
		return fmt.Errorf("%w: %w", kb.ErrUnavailable, context.Cause(t.ctx))
	case <-time.After(t.pause):
		return nil
	}
}

func (t *transfer) close() {
	t.stalled.Stop()
	if t.body != nil {
		_ = t.body.Close() // only read from
		t.body = nil
	}
}

// cause says why a context ended that a call was broken off for.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// ListOf returns the artifacts of a peer with their sizes.
func (e *Exchange) ListOf(ctx context.Context, p Peer) (map[string]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, artifactURL(p, ""), nil)
	if err != nil {
		return nil, err
	}
	answer, err := e.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("broker %s: %w: %w", p.Host, kb.ErrUnavailable, err)
	}
	defer func() { _ = answer.Body.Close() }() // only read from
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("broker %s answers %s: %w", p.Host, answer.Status, kb.ErrUnavailable)
	}
	files := map[string]uint64{}
	limited := &io.LimitedReader{R: answer.Body, N: mostList}
	lines := bufio.NewScanner(limited)
	for lines.Scan() {
		digest, text, _ := strings.Cut(lines.Text(), " ")
		size, err := strconv.ParseUint(text, 10, 63)
		if err != nil || kb.ValidateDigest(digest) != nil {
			return nil, fmt.Errorf("broker %s lists %.100q: %w", p.Host, lines.Text(), kb.ErrInvalid)
		}
		files[digest] = size
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("broker %s: %w: %w", p.Host, kb.ErrUnavailable, err)
	}
	if limited.N == 0 {
		return nil, fmt.Errorf("broker %s lists more than %d bytes: %w", p.Host, mostList, kb.ErrInvalid)
	}
	return files, nil
}
