// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
)

// Answers is a folder of the answers to a search, a file for each question, so
// that a search that was killed goes on where it was: asked again, it has the
// same questions in the same order. All answers in it depend on the same.
type Answers string

// answered is what a file has.
type answered struct {
	Off    []string `json:"off"`
	Answer Answer   `json:"answer"`
}

// Ask answers from the folder where it can, and writes down what it learns.
func (a Answers) Ask(ask Ask) Ask {
	return func(ctx context.Context, off []string) (Answer, error) {
		sorted := slices.Sorted(slices.Values(off)) // their order does not change the kernel
		name := strings.TrimPrefix(digest.Of([]byte(strings.Join(sorted, "\n"))), "sha256:")
		path := filepath.Join(string(a), name+".json")
		var known answered
		text, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(text, &known)
		}
		if err == nil {
			return known.Answer, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return Answer{}, fmt.Errorf("answer %s: %w", path, err)
		}
		if known.Answer, err = ask(ctx, off); err != nil {
			return Answer{}, err
		}
		known.Off = sorted
		if text, err = json.Marshal(known); err == nil {
			err = atomicfile.Write(path, text, 0o644)
		}
		return known.Answer, err
	}
}
