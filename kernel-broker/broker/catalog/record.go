// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

const (
	keyPrefix    = "profiles/"
	recordFormat = 1

	// A client repeats a request within seconds; no more than 32 changes of one profile happen in between.
	maxRequests = 32
	maxWrites   = 32
	maxFailures = 256
)

// record is the stored value of a profile.
type record struct {
	Format  int        `json:"format"`
	Profile kb.Profile `json:"profile"`
	// Requests that were carried out, oldest first.
	Requests []request `json:"requests,omitempty"`
	// Failures are the ids of the boots counted last, oldest first.
	Failures []string `json:"failures,omitempty"`
	// Writes are random ids of the last changes, oldest first. With them a writer whose commit got no answer learns
	// whether it was applied, even after later writes.
	Writes []string `json:"writes"`
}

// request identifies a change by its id and its content.
type request struct {
	ID     string `json:"id"`
	Digest string `json:"digest"`
}

func key(name string) string { return keyPrefix + name }

// encode drops the changes that the history has no room for.
func (r *record) encode() ([]byte, error) {
	r.Format = recordFormat
	history := r.Profile.History
	r.Profile.History = nil
	value, err := marshal(r)
	if err == nil && len(history) > 0 {
		room := store.MaxCommitBytes - len(key(r.Profile.Name)) - len(value)
		if r.Profile.History, err = latest(history, min(room, historyBytes)); err == nil {
			value, err = marshal(r)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("record of profile %q: %w", r.Profile.Name, err)
	}
	return value, nil
}

// marshal escapes only what JSON requires: texts count against the size of a record.
func marshal(v any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// decode rejects a newer broker's format: rewriting it would drop unknown fields.
func decode(name string, value []byte) (*record, error) {
	r := &record{}
	decoder := json.NewDecoder(bytes.NewReader(value))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(r); err != nil {
		return nil, fmt.Errorf("record of profile %q: %w", name, err)
	}
	if r.Format != recordFormat {
		return nil, fmt.Errorf("record of profile %q has format %d, this program supports %d", name, r.Format, recordFormat)
	}
	if r.Profile.Name != name {
		return nil, fmt.Errorf("record of profile %q holds profile %q", name, r.Profile.Name)
	}
	return r, nil
}

// done reports whether a request was carried out before. The same id with
// other content is a mistake of the caller.
func (r *record) done(id, digest string) (bool, error) {
	for _, old := range r.Requests {
		if old.ID != id {
			continue
		}
		if old.Digest != digest {
			return false, fmt.Errorf("request id %q was used for another request: %w", id, kb.ErrInvalid)
		}
		return true, nil
	}
	return false, nil
}

func (r *record) remember(id, digest string) {
	r.Requests = append(r.Requests, request{ID: id, Digest: digest})
	r.Requests = r.Requests[max(0, len(r.Requests)-maxRequests):]
}

func (r *record) sign(nonce string) {
	r.Writes = append(r.Writes, nonce)
	r.Writes = r.Writes[max(0, len(r.Writes)-maxWrites):]
}

// digestOf distinguishes two requests with the same id.
func digestOf(parts ...any) (string, error) {
	text, err := json.Marshal(parts)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8]), nil
}
