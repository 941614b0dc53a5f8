// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
)

// Store is a folder of results and of the states of runs. Several processes may use one, on
// several machines when its file system has locks that reach that far.
type Store struct {
	Dir string
}

// Result of a step, as step.json beside its files has it.
type Result struct {
	Kind   string            `json:"kind"`
	Key    string            `json:"key"`
	Digest string            `json:"digest"` // of the files
	Inputs map[string]string `json:"inputs,omitempty"`
	Needs  map[string]string `json:"needs,omitempty"` // digests
	Began  time.Time         `json:"began"`
	Ended  time.Time         `json:"ended"`
	Host   string            `json:"host"`

	dir string
	// cached: it was there before. shared: another process made it meanwhile.
	cached, shared bool
}

// Files is the folder with what the step made.
func (r Result) Files() string { return filepath.Join(r.dir, "files") }

// spot is the place of one key: of the result, and of all attempts at it.
type spot struct {
	kind, key, dir string
}

func (s Store) spot(kind, key string) spot {
	return spot{kind: kind, key: key, dir: filepath.Join(s.Dir, "steps", kind, key)}
}

func (s spot) path(name string) string { return filepath.Join(s.dir, name) }
func (s spot) log() string             { return s.path("log") }

// Find returns the result of a key; errors.Is(err, fs.ErrNotExist) when there
// is none.
func (s Store) Find(kind, key string) (Result, error) { return s.spot(kind, key).result() }

func (s spot) result() (Result, error) {
	dir := s.path("result")
	text, err := os.ReadFile(filepath.Join(dir, "step.json"))
	if err != nil {
		return Result{}, fmt.Errorf("result of %q: %w", s.kind, err)
	}
	var result Result
	if err := json.Unmarshal(text, &result); err != nil {
		return Result{}, fmt.Errorf("result in %q: %w", dir, err)
	}
	if result.Kind != s.kind || result.Key != s.key || result.Digest == "" {
		return Result{}, fmt.Errorf("result in %q does not match its key", dir)
	}
	result.dir = dir
	return result, nil
}

// found distinguishes a missing result from an error.
func (s spot) found() (Result, bool, error) {
	result, err := s.result()
	if errors.Is(err, fs.ErrNotExist) {
		return Result{}, false, nil
	}
	return result, err == nil, err
}

// keep moves a finished folder into its place.
func (s spot) keep(partial string, result Result) (Result, error) {
	digest, err := TreeDigest(filepath.Join(partial, "files"))
	if err != nil {
		return Result{}, err
	}
	result.Digest, result.Ended = digest, time.Now().UTC()
	text, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		return Result{}, err
	}
	if err := os.WriteFile(filepath.Join(partial, "step.json"), append(text, '\n'), 0o644); err != nil {
		return Result{}, err
	}
	if err := atomicfile.SyncAll(partial); err != nil {
		return Result{}, err
	}
	if err := os.Rename(partial, s.path("result")); err != nil {
		return Result{}, err
	}
	result.dir = s.path("result")
	return result, atomicfile.SyncDir(s.dir)
}

// partialPrefix begins the names of folders that are being filled. Each attempt
// has one of its own: what a killed attempt started may still write to the old.
const partialPrefix = "partial-"

// clear removes what killed attempts left. Who holds the lock may call it.
func (s spot) clear() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	var wrong []error
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), partialPrefix) {
			wrong = append(wrong, removeAll(s.path(entry.Name())))
		}
	}
	return errors.Join(append(wrong, remove(s.path("failure.json")), remove(s.path("units")))...)
}

// removeAll also removes folders that a step made without the right to write.
func removeAll(dir string) error {
	if os.RemoveAll(dir) == nil {
		return nil
	}
	// Best effort: the removal that follows has the error.
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			_ = os.Chmod(path, 0o755) //nolint:gosec // G122: a folder of our own
		}
		return nil
	})
	return os.RemoveAll(dir)
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// keyFormat changes when results of old keys are no longer what the same inputs
// would give.
const keyFormat = 1

// key is the digest of all that a step's result depends on.
func key(step *Step, needs map[string]Result) (string, error) {
	digests := map[string]string{}
	for as, result := range needs {
		digests[as] = result.Digest
	}
	return ValueDigest(map[string]any{
		"format": keyFormat, "kind": step.Kind, "inputs": step.Inputs, "needs": digests,
	})
}

// ValueDigest is the digest of a value in JSON, in hex. Maps are sorted by it.
func ValueDigest(value any) (string, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("digest: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// FileDigest is the digest of a file's bytes, "sha256:" and hex.
func FileDigest(path string) (string, error) {
	text, _, err := digest.File(path)
	return text, err
}

// TreeDigest is the digest of a folder's files, with their names and whether they may be run.
func TreeDigest(dir string) (string, error) { return digest.Tree(dir) }

// treeSize is the size of all files in a folder.
func treeSize(dir string) (bytes int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			bytes += info.Size()
		}
		return err
	})
	return bytes, err
}
