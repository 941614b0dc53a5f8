// SPDX-License-Identifier: Apache-2.0

package profiling

import (
	"encoding/json"
	"fmt"
	"time"
)

// Live is one line of figures while a job runs. Lists in the result are cut.
type Live struct {
	Format int       `json:"format"`
	At     time.Time `json:"at"`
	// Ended is true in the last line.
	Ended  bool   `json:"ended"`
	Result Result `json:"result"`
}

// JSON of a result, indented.
func (r Result) JSON() ([]byte, error) {
	content, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return nil, fmt.Errorf("profiling result: %w", err)
	}
	return append(content, '\n'), nil
}

// ParseResult reads what JSON writes. Names that are not known are left alone:
// a later version of the same format may have more.
func ParseResult(content []byte) (Result, error) {
	var r Result
	if err := json.Unmarshal(content, &r); err != nil {
		return Result{}, fmt.Errorf("profiling result: %w", err)
	}
	if r.Format != Format {
		return Result{}, fmt.Errorf("profiling result: format %d: %w", r.Format, ErrFormat)
	}
	return r, nil
}
