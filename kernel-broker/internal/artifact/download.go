// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
)

func (d *Dir) partialPath(digest Digest) string {
	return filepath.Join(d.root, "partial", digest.hex())
}

// listPartials returns the interrupted downloads and removes other files there.
func (d *Dir) listPartials() ([]Entry, error) {
	dir := filepath.Join(d.root, "partial")
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("artifact directory %q: %w", d.root, err)
	}
	var entries []Entry
	for _, file := range files {
		digest, err := ParseDigest(digestPrefix + file.Name())
		if err != nil {
			if err := os.RemoveAll(filepath.Join(dir, file.Name())); err != nil {
				return nil, fmt.Errorf("artifact directory %q: %w", d.root, err)
			}
			continue
		}
		info, err := file.Info()
		if errors.Is(err, os.ErrNotExist) {
			continue // complete meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("artifact directory %q: %w", d.root, err)
		}
		entries = append(entries, Entry{digest, info.Size(), info.ModTime()})
	}
	return entries, nil
}

// download fetches an artifact into the cache. A crash may have damaged earlier data, so if a resumed download does not
// match, it starts once more at 0.
func (c *Cache) download(ctx context.Context, digest Digest, size int64, fetch Fetch) error {
	resumed, err := c.attempt(ctx, digest, size, fetch)
	if resumed && errors.Is(err, ErrDigestMismatch) {
		c.log.Warn("continued download does not match, starting again", "digest", digest.String())
		_, err = c.attempt(ctx, digest, size, fetch)
	}
	return err
}

// attempt resumes a partial file or starts one, and reports which.
func (c *Cache) attempt(ctx context.Context, digest Digest, size int64, fetch Fetch) (resumed bool, err error) {
	err = c.dir.receive(digest, size, func(p *partial) error {
		if err := p.rehash(ctx); err != nil {
			return err
		}
		resumed = p.have > 0
		return p.fetch(ctx, fetch)
	})
	return resumed, err
}

// receive has a partial file completed, and adopts it.
func (d *Dir) receive(digest Digest, size int64, complete func(*partial) error) (err error) {
	path := d.partialPath(digest)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return full(err)
	}
	defer func() {
		_ = file.Close() // adopt has closed it, or its content does not matter
		if err = full(err); discardsPartial(err) {
			err = errors.Join(err, ignoreMissing(os.Remove(path)))
		}
	}()
	p := &partial{file: file, size: size}
	if err := complete(p); err != nil {
		return err
	}
	if p.have < size {
		return fmt.Errorf("%w: %d of %d bytes", ErrTruncated, p.have, size)
	}
	if have := sumOf(p.sum); have != digest {
		return mismatch(digest, have)
	}
	return d.adopt(file, digest)
}

// discardsPartial reports errors after which a partial file is useless or its space is needed.
func discardsPartial(err error) bool {
	return errors.Is(err, ErrDigestMismatch) || errors.Is(err, ErrTooLarge) || errors.Is(err, ErrDiskFull)
}

// partial is a download in the making.
type partial struct {
	file *os.File
	size int64     // when it is complete
	have int64     // bytes in the file, which is positioned behind them
	sum  hash.Hash // of those bytes
}

// rehash hashes the existing part of the file.
func (p *partial) rehash(ctx context.Context) error {
	info, err := p.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() > p.size {
		return p.restart()
	}
	p.sum = sha256.New()
	p.have, err = io.Copy(p.sum, contextReader{ctx, p.file})
	return err
}

// restart discards the data so far.
func (p *partial) restart() error {
	p.sum, p.have = sha256.New(), 0
	if err := p.file.Truncate(0); err != nil {
		return err
	}
	_, err := p.file.Seek(0, io.SeekStart)
	return err
}

// take appends what is missing from a source.
func (p *partial) take(ctx context.Context, source io.Reader) error {
	n, err := fill(ctx, p.file, p.sum, source, p.size-p.have)
	p.have += n
	return err
}

func (p *partial) fetch(ctx context.Context, fetch Fetch) error {
	if p.have == p.size && p.size > 0 {
		return nil
	}
	body, err := fetch(ctx, p.have)
	if errors.Is(err, ErrNoResume) && p.have > 0 {
		if err := p.restart(); err != nil {
			return err
		}
		body, err = fetch(ctx, 0)
	}
	if err == nil {
		err = errors.Join(p.take(ctx, body), body.Close())
	}
	if err != nil {
		return fmt.Errorf("fetch at %d: %w", p.have, err)
	}
	return nil
}
