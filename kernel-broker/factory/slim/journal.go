// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Journal keeps the answers to a search, so that one that was killed goes on
// where it was: asked again, it has the same questions in the same order.
// One process writes to it at a time; that is the caller's to see to.
type Journal struct {
	file    *os.File
	base    string
	answers map[string]Answer
}

// entry is one line of the file.
type entry struct {
	Base   string   `json:"base"`
	Off    []string `json:"off"`
	Answer Answer   `json:"answer"`
}

// OpenJournal opens or makes the file. Base names all that answers depend on
// besides the options: of another base they are not used.
func OpenJournal(path, base string) (*Journal, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	journal := &Journal{file: file, base: base, answers: map[string]Answer{}}
	if err := journal.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("journal %s: %w", path, err), file.Close())
	}
	return journal, nil
}

// load reads whole lines. What a kill left of the last one is cut off.
func (j *Journal) load() error {
	data, err := io.ReadAll(j.file)
	if err != nil {
		return err
	}
	whole := bytes.LastIndexByte(data, '\n') + 1
	if err := j.file.Truncate(int64(whole)); err != nil {
		return err
	}
	if _, err := j.file.Seek(int64(whole), io.SeekStart); err != nil {
		return err
	}
	number := 0
	for line := range bytes.Lines(data[:whole]) {
		number++
		var read entry
		if err := json.Unmarshal(line, &read); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
		j.answers[key(read.Base, read.Off)] = read.Answer
	}
	return nil
}

// Close the file.
func (j *Journal) Close() error { return j.file.Close() }

// Ask answers from the journal where it can, and writes down what it learns.
func (j *Journal) Ask(ask Ask) Ask {
	return func(ctx context.Context, off []string) (Answer, error) {
		if answer, known := j.answers[key(j.base, off)]; known {
			return answer, nil
		}
		answer, err := ask(ctx, off)
		if err != nil {
			return Answer{}, err
		}
		return answer, j.write(off, answer)
	}
}

func (j *Journal) write(off []string, answer Answer) error {
	off = slices.Clone(off)
	slices.Sort(off)
	line, err := json.Marshal(entry{Base: j.base, Off: off, Answer: answer})
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if _, err := j.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if err := j.file.Sync(); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	j.answers[key(j.base, off)] = answer
	return nil
}

// key of a set of options: their order does not change the kernel.
func key(base string, off []string) string {
	sorted := slices.Clone(off)
	slices.Sort(sorted)
	sum := sha256.Sum256([]byte(base + "\n" + strings.Join(sorted, "\n")))
	return hex.EncodeToString(sum[:])
}
