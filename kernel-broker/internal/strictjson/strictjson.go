// SPDX-License-Identifier: Apache-2.0

// Package strictjson reads files that programs write, where a key that is not known may mean something that must not be
// ignored.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// Decode refuses unknown keys, and anything behind the value.
func Decode(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one value")
	}
	return nil
}
