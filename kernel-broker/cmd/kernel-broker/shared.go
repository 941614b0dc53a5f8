// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// policyKey has the mark that a policy's file is in force: at a start, a file that is gone looks like one that never was.
const policyKey = "policy"

type policyMark struct {
	File  string    `json:"file"`
	Since time.Time `json:"since"`
}

// openPolicy has the policy in force. Once there was a file, the broker does not start without one, unless broker.yaml
// says that there is to be none.
func openPolicy(ctx context.Context, o authz.Options, kept store.Store) (*authz.Authorizer, error) {
	mark, err := markOf(ctx, kept)
	if err != nil {
		return nil, err
	}
	if mark != nil && o.File == "" {
		o.Log.Warn(`policy lifted by policy: "" in broker.yaml: every user may use published kernels`, "file", mark.File)
		if _, err := kept.Commit(ctx, store.Write{Key: policyKey, Delete: true, Expect: store.AnyRevision}); err != nil {
			return nil, err
		}
		mark = nil
	}
	o.Optional = o.Optional && mark == nil
	o.Keep = func(p *authz.Policy) error {
		if p.File == "" {
			return nil
		}
		return setMark(ctx, kept, p.File)
	}
	a, err := authz.New(o)
	if mark != nil && errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: the policy of %s is in force on this cluster since %s; restore the file, or write policy: \"\" into broker.yaml to have every user use published kernels",
			err, mark.File, mark.Since.UTC().Format(time.RFC3339))
	}
	if err != nil && !errors.Is(err, kb.ErrUnavailable) {
		err = usageError{err}
	}
	return a, err
}

// markOf returns the mark; nil: there is none.
func markOf(ctx context.Context, kept store.Store) (*policyMark, error) {
	rec, err := kept.Get(ctx, policyKey)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	mark := &policyMark{}
	if err == nil {
		err = json.Unmarshal(rec.Value, mark)
	}
	if err != nil {
		return nil, fmt.Errorf("record %q: %w", policyKey, err)
	}
	return mark, nil
}

func setMark(ctx context.Context, kept store.Store, file string) error {
	mark, err := markOf(ctx, kept)
	if err != nil || mark != nil && mark.File == file {
		return err
	}
	text, err := json.Marshal(policyMark{File: file, Since: time.Now()})
	if err == nil {
		_, err = kept.Commit(ctx, store.Write{Key: policyKey, Value: text, Expect: store.AnyRevision})
	}
	return err
}
