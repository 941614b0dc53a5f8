// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/signing"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
)

// Records of files that all brokers of a cluster go by.
const (
	policyKey    = "policy"
	trustListKey = "trust-list"
)

// shared is a file that administrators edit on the brokers' hosts. The text in force is a record. An edit comes into force at
// the start, or the reload, of its host's broker. At a start a file does not that is missing, older than what is in force, or
// that its broker has seen like that before.
type shared struct {
	store store.Store
	key   string
	file  string
	host  string
	alone bool // no other broker can have changed the record
	log   *slog.Logger
}

// sharedText is the record.
type sharedText struct {
	File  string    `json:"file"`
	Since time.Time `json:"since"`
	Host  string    `json:"host,omitempty"`
	// Digest is empty in a record of an earlier version, which had no text.
	Digest string `json:"digest,omitempty"`
	Text   string `json:"text,omitempty"`
	// Seen has the digest of each host's file as its broker has last seen it.
	Seen map[string]string `json:"seen,omitempty"`
}

func (c config) shared(kept store.Store, log *slog.Logger, key, file string) (shared, error) {
	host, err := os.Hostname()
	return shared{store: kept, key: key, file: file, host: host, alone: !c.Etcd.external(), log: log}, err
}

// read returns the record, nil where there is none, and its revision.
func (s shared) read(ctx context.Context) (*sharedText, int64, error) {
	rec, err := s.store.Get(ctx, s.key)
	if errors.Is(err, store.ErrNotFound) {
		return nil, 0, nil
	}
	text := &sharedText{}
	if err == nil {
		err = json.Unmarshal(rec.Value, text)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("record %q: %w", s.key, err)
	}
	return text, rec.Revision, nil
}

// take returns what is in force, given the text of this host's file; nil: nothing is. Again is set for a reload.
func (s shared) take(ctx context.Context, text []byte, again bool) (*sharedText, error) {
	have, revision, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	sum := digest.Of(text)
	if have != nil && have.Digest != "" {
		seen := have.Seen[s.host]
		edited := have.Digest != sum && (again || s.alone || seen != "" && seen != sum && !s.changed().Before(have.Since))
		if !edited && seen == sum {
			return have, nil
		}
		if !edited {
			if have.Digest != sum {
				s.log.Warn("this host's file is not what is in force, and its broker has not seen it edited: systemctl reload kernel-broker puts it in force",
					"file", s.file, "in_force", have.from())
			}
			next := *have
			next.Seen = have.seenBy(s.host, sum)
			return &next, s.write(ctx, next, revision)
		}
	}
	next := sharedText{File: s.file, Since: time.Now().UTC().Truncate(time.Second), Host: s.host, Digest: sum, Text: string(text), Seen: have.seenBy(s.host, sum)}
	return &next, s.write(ctx, next, revision)
}

// seenBy adds what a host's file has.
func (t *sharedText) seenBy(host, digest string) map[string]string {
	seen := map[string]string{}
	if t != nil {
		maps.Copy(seen, t.Seen)
	}
	seen[host] = digest
	return seen
}

// changed is when somebody has written the file.
func (s shared) changed() (at time.Time) {
	if info, err := os.Stat(s.file); err == nil {
		at = info.ModTime()
	}
	return at
}

func (t sharedText) from() string {
	return fmt.Sprintf("%s of %s, since %s", t.File, t.Host, t.Since.UTC().Format(time.RFC3339))
}

func (s shared) write(ctx context.Context, text sharedText, revision int64) error {
	value, err := json.Marshal(text)
	if err == nil {
		_, err = s.store.Commit(ctx, store.Write{Key: s.key, Value: value, Expect: revision})
	}
	if err != nil {
		return fmt.Errorf("record %q of %s: %w", s.key, s.file, err)
	}
	return nil
}

// lift ends what is in force.
func (s shared) lift(ctx context.Context, follows string) error {
	have, _, err := s.read(ctx)
	if err != nil || have == nil {
		return err
	}
	s.log.Warn("what was in force is lifted by broker.yaml, for all brokers", "file", have.File, "now", follows)
	_, err = s.store.Commit(ctx, store.Write{Key: s.key, Delete: true, Expect: store.AnyRevision})
	return err
}

// policy chooses between the file's policy and that of the record.
func (s shared) policy(ctx context.Context, always []uint32) func(authz.State, error, bool) (authz.State, error) {
	return func(found authz.State, wrong error, again bool) (authz.State, error) {
		if s.file == "" {
			return found, errors.Join(wrong, s.lift(ctx, "every user may use published kernels"))
		}
		if again && wrong != nil && !errors.Is(wrong, fs.ErrNotExist) {
			return found, wrong
		}
		var have *sharedText
		var err error
		if wrong == nil {
			have, err = s.take(ctx, []byte(found.Text), again)
		} else {
			have, _, err = s.read(ctx)
		}
		switch {
		case err != nil:
			return found, err
		case have == nil, have.Digest == "" && !errors.Is(wrong, fs.ErrNotExist):
			return found, wrong
		case have.Digest == "":
			return found, fmt.Errorf("%w: the policy of %s is in force on this cluster since %s; restore the file, or write policy: \"\" into broker.yaml to have every user use published kernels",
				errPolicyGone, have.File, have.Since.UTC().Format(time.RFC3339))
		case have.Digest == found.Digest:
			return found, nil
		}
		if wrong != nil && !errors.Is(wrong, fs.ErrNotExist) {
			s.log.Error("this host's policy is not read, the one before stays in force", "in_force", have.from(), "error", wrong)
		}
		p, err := authz.Parse(have.File, []byte(have.Text))
		if err != nil {
			return found, fmt.Errorf("record %q: %w", s.key, err)
		}
		p.Always = always
		return authz.State{Policy: p, Text: have.Text, Digest: have.Digest, Since: have.Since}, nil
	}
}

// errPolicyGone is no fs.ErrNotExist, so that no option makes it a site without a policy.
var errPolicyGone = errors.New("policy: no such file")

// openPolicy has the policy in force.
func openPolicy(ctx context.Context, o authz.Options, s shared) (*authz.Authorizer, error) {
	o.Share = s.policy(ctx, o.Always)
	a, err := authz.New(o)
	if err != nil && !errors.Is(err, kb.ErrUnavailable) {
		err = usageError{err}
	}
	return a, err
}

// noTrustList in broker.yaml lifts a trust list.
const noTrustList = "none"

// trust returns the trust list in force; nil: there is none.
func (s shared) trust(ctx context.Context) (*signing.Trust, error) {
	if s.file == noTrustList {
		return nil, s.lift(ctx, "kernels need no signature to be registered")
	}
	var have *sharedText
	text, err := signing.ReadTrustText(s.file) // without a name there is no such file
	switch {
	case err == nil:
		if _, err := signing.ParseTrust(s.file, text); err != nil {
			return nil, err
		}
		have, err = s.take(ctx, text, false)
	case errors.Is(err, fs.ErrNotExist):
		missing := err
		if have, _, err = s.read(ctx); err == nil && have == nil && s.file != "" {
			err = missing
		}
	}
	if err != nil || have == nil {
		return nil, err
	}
	trust, err := signing.ParseTrust(have.File, []byte(have.Text))
	return &trust, err
}

// openTrustList returns what reads the trust list in force, which is good now.
func openTrustList(ctx context.Context, c config, log *slog.Logger, kept store.Store) (func() (*signing.Trust, error), error) {
	s, err := c.shared(kept, log, trustListKey, c.TrustList)
	if err != nil {
		return nil, err
	}
	read := func() (*signing.Trust, error) { return s.trust(ctx) }
	trust, err := read()
	if err != nil && !errors.Is(err, kb.ErrUnavailable) {
		err = usageError{err}
	}
	if err == nil && trust != nil {
		log.Info("kernels must be signed to be registered", "trust_list", c.TrustList)
	}
	return read, err
}

// checkShared finds out, before the broker waits for another one, whether it could take over with its files.
func checkShared(ctx context.Context, c config, kept store.Store) error {
	for _, f := range []struct{ key, name, file, lifted string }{
		{policyKey, "policy", c.Policy, `policy: "" has every user use published kernels`}, {trustListKey, "trust_list", c.TrustList, "trust_list: none asks for no signature"},
	} {
		if f.file == "" || f.file == noTrustList || f.key == policyKey && c.policyOptional() {
			continue
		}
		if _, err := os.Stat(f.file); err == nil {
			continue
		} else if _, there := kept.Get(ctx, f.key); there != nil {
			return usageError{fmt.Errorf("%s: %w, and no broker of the cluster has put one in force (%s)", f.name, err, f.lifted)}
		}
	}
	return nil
}
