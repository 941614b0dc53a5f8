// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/audit"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/credential"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/munge"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/nss"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/slurm"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/openretry"
)

// defaultPolicy may be missing: a site that names no file needs none.
const defaultPolicy = "/etc/kernel-broker/policy.yaml"

// policyOptional reports whether the policy's file may be missing. Not where brokers take over from each other: one
// without the others' file would lift every restriction.
func (c config) policyOptional() bool {
	return c.Policy == defaultPolicy && len(c.Slurm.Controllers) == 0
}

// authorization is who may do what here, and the record of it.
type authorization struct {
	*authz.Authorizer
	log       *slog.Logger
	record    *audit.Log
	directory *nss.Directory
	accounts  *slurm.AccountCache
	level     *slurm.LevelProbe
	privacy   *slurm.Privacy
	slurm     *slurm.Client
	hangups   chan os.Signal
	// registered are the profiles' names; set before follow.
	registered func(context.Context) ([]string, error)
	// heads has the heads of all brokers' chains, and host names this one's; nil for a broker that is alone.
	heads store.Store
	host  string
	// What else the policy names and was not found at the last look.
	unknown atomic.Pointer[[]string]
}

// openAuthorization has the policy in force and the record open. changed is called
// after another policy came into force.
func openAuthorization(ctx context.Context, c config, log *slog.Logger, kept store.Store, client *slurm.Client, hangups chan os.Signal, changed func()) (*authorization, error) {
	administrators, err := uids(c.Administrators)
	if err != nil {
		return nil, usageError{err}
	}
	dir, err := c.auditDir()
	if err != nil {
		return nil, err
	}
	r := &authorization{log: log, slurm: client, directory: nss.New(), accounts: slurm.NewAccountCache(client),
		level: slurm.NewLevelProbe(os.Geteuid(), client.Level), hangups: hangups}
	r.privacy = slurm.NewPrivacy(client, r.directory.ByUID)
	r.record, err = openretry.Open(ctx, openretry.Patience, kb.ErrFailedPrecondition, func() (*audit.Log, error) {
		return audit.Open(audit.Options{Dir: dir, MaxBytes: int64(c.Audit.MaxFileBytes), Log: log})
	})
	if err != nil {
		return nil, err
	}
	if c.Etcd.external() {
		r.heads, r.host = kept, filepath.Base(dir)
		if err := r.witness(ctx); err != nil {
			return nil, errors.Join(err, r.record.Close())
		}
	}
	policy, err := c.shared(kept, log, policyKey, c.Policy)
	if err == nil {
		r.Authorizer, err = openPolicy(ctx, authz.Options{
			File: c.Policy, Optional: c.policyOptional(), Log: log, Changed: changed,
			Always: append([]uint32{0, uint32(os.Geteuid())}, administrators...), Users: r.directory, Accounts: r.accounts.Of,
			JobAccount: client.Account, Record: r.record,
		}, policy)
	}
	if err != nil {
		return nil, errors.Join(err, r.record.Close())
	}
	if err := r.NoteBroker("start", "version "+version); err != nil {
		return nil, errors.Join(err, r.record.Close())
	}
	return r, nil
}

// auditDir is the folder of this broker's chain. Where others may act on the cluster, each has its own by its host's name.
func (c config) auditDir() (string, error) {
	dir := cmp.Or(c.Audit.Dir, filepath.Join(c.DataDir, "audit"))
	if !c.Etcd.external() {
		return dir, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, filepath.Base(host)), nil
}

func (r *authorization) close() error {
	err := r.NoteBroker("stop", "")
	r.publishHead(context.Background())
	return errors.Join(err, r.record.Close())
}

// headPrefix begins the records that have the head of each host's chain.
const headPrefix = "audit-head/"

// witness has this chain know the heads of the others', which others verify theirs by.
func (r *authorization) witness(ctx context.Context) error {
	records, _, err := r.heads.List(ctx, headPrefix)
	if err != nil {
		return fmt.Errorf("records %q: %w", headPrefix, err)
	}
	others := map[string]string{}
	for _, rec := range records {
		others[strings.TrimPrefix(rec.Key, headPrefix)] = string(rec.Value)
	}
	return r.record.Witness(others)
}

// publishHead records the head of this chain for the others. One that fails is made up for by the next.
func (r *authorization) publishHead(ctx context.Context) {
	if r.heads == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, headLimit)
	defer cancel()
	head, err := r.record.OnDisk()
	if err == nil && head != nil {
		_, err = r.heads.Commit(ctx, store.Write{Key: headPrefix + r.host, Value: []byte(head.String()), Expect: store.AnyRevision})
	}
	if err != nil && ctx.Err() == nil {
		r.log.Warn("the audit log's head is not on record for the other brokers", "error", err)
	}
}

// follow reads the policy again at each SIGHUP, until ctx ends.
func (r *authorization) follow(ctx context.Context) error {
	r.level.Warn(ctx, r.log)
	r.look(ctx, r.log)
	r.publishHead(ctx)
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
			r.look(ctx, slog.New(slog.DiscardHandler))
			r.publishHead(ctx)
		case <-r.hangups:
			r.directory.Forget()
			r.accounts.Forget()
			r.privacy.Forget()
			// Reload has logged a failure, which Health reports until the file is good.
			if r.Reload() == nil {
				r.look(ctx, r.log)
			}
		}
	}
}

const (
	// lookAgain is how often the policy's names are looked up: users come and go, and a name service that is away has none.
	lookAgain = 10 * time.Minute
	// lookLimit bounds looking people up, since a reload waits for it.
	lookLimit = 20 * time.Second
	// headLimit bounds recording a head: the store may be away when a broker ends.
	headLimit = 2 * time.Second
)

// look finds what the policy names and the host and Slurm do not have.
func (r *authorization) look(ctx context.Context, log *slog.Logger) {
	limited, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	unknown := r.State().Policy.UnknownPeople(limited, r.directory)
	for _, text := range append(r.unknownProfiles(ctx), unknown...) {
		log.Warn("the policy names what is not there", "what", text)
	}
	if text := r.accountsLacking(ctx, log); text != "" {
		unknown = append(unknown, text)
	}
	r.unknown.Store(&unknown)
}

// accountsLacking says which of the policy's accounts Slurm does not have; the log also, whether it does not enforce them.
func (r *authorization) accountsLacking(ctx context.Context, log *slog.Logger) string {
	named := r.State().Policy.Accounts()
	if len(named) == 0 {
		return ""
	}
	enforced, err := r.slurm.EnforcesAccounts(ctx)
	var lacks []string
	if err == nil && enforced {
		lacks, err = r.slurm.LacksAccounts(ctx, named)
	}
	switch {
	case err != nil && ctx.Err() == nil:
		log.Warn("policy names accounts, and slurmctld does not say whether it has and enforces them", "error", err)
	case err == nil && !enforced:
		log.Warn("policy names accounts, and slurmctld lets every user name any: set AccountingStorageEnforce=associations in slurm.conf")
	case len(lacks) > 0:
		const text = "policy names accounts that Slurm does not have: any account coordinator can create them"
		log.Warn(text, "accounts", lacks)
		return fmt.Sprintf("%s: %s", text, strings.Join(lacks, ", "))
	}
	return ""
}

// mostWarned is how many warnings one line has.
const mostWarned = 4

func (r *authorization) unknownProfiles(ctx context.Context) []string {
	p := r.State().Policy
	if len(p.Profiles) == 0 {
		return nil
	}
	names, err := r.registered(ctx)
	if err != nil { // a store that is away is another component's fault
		return nil
	}
	return p.UnknownProfiles(names)
}

// component is the policy's health, and what it names that is not there.
func (r *authorization) component(ctx context.Context, check func() (string, error)) server.Component {
	c := component("policy", check)
	warnings := r.unknownProfiles(ctx)
	if c.Warning != "" {
		warnings = append([]string{c.Warning}, warnings...)
	}
	if unknown := r.unknown.Load(); unknown != nil {
		warnings = append(warnings, *unknown...)
	}
	if n := len(warnings) - mostWarned; n > 0 {
		warnings = append(warnings[:mostWarned], fmt.Sprintf("and %d more (kernelctl policy check FILE)", n))
	}
	c.Warning = strings.Join(warnings, "; ")
	return c
}

// authorizeJob decides whether a job may use a profile. Its lookups do not queue behind those of callers.
func (r *authorization) authorizeJob(ctx context.Context, job kb.SlurmJob, ref kb.Ref) error {
	return r.AuthorizeJob(nss.ForJob(ctx), job, ref)
}

// authorizeProfiling decides likewise whether it may be profiled.
func (r *authorization) authorizeProfiling(ctx context.Context, job kb.SlurmJob, ref kb.Ref) error {
	return r.AuthorizeProfiling(nss.ForJob(ctx), job, ref)
}

// verifier judges users' credentials; nil where nobody is to be known over the
// network.
func verifier(c config) *credential.Verifier {
	if c.Munge.Socket == "" {
		return nil
	}
	return credential.NewVerifier(credential.Options{Decoder: munge.New(c.Munge.Socket), Cluster: c.Cluster})
}
