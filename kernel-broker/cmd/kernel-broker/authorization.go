// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/audit"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/credential"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/munge"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/nss"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/slurm"
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
}

// openAuthorization has the policy in force and the record open. changed is called
// after another policy came into force.
func openAuthorization(ctx context.Context, c config, log *slog.Logger, client *slurm.Client, hangups chan os.Signal, changed func()) (*authorization, error) {
	administrators, err := uids(c.Administrators)
	if err != nil {
		return nil, usageError{err}
	}
	dir := c.Audit.Dir
	if dir == "" {
		dir = filepath.Join(c.DataDir, "audit")
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
	r.Authorizer, err = authz.New(authz.Options{
		File: c.Policy, Optional: c.policyOptional(), Log: log, Changed: changed,
		Always: append([]uint32{0, uint32(os.Geteuid())}, administrators...), Users: r.directory, Accounts: r.accounts.Of,
		JobAccount: client.Account, Record: r.record,
	})
	if err != nil {
		return nil, errors.Join(usageError{err}, r.record.Close())
	}
	if err := r.NoteBroker("start", "version "+version); err != nil {
		return nil, errors.Join(err, r.record.Close())
	}
	return r, nil
}

func (r *authorization) close() error {
	return errors.Join(r.NoteBroker("stop", ""), r.record.Close())
}

// follow reads the policy again at each SIGHUP, until ctx ends.
func (r *authorization) follow(ctx context.Context) error {
	r.level.Warn(ctx, r.log)
	r.warn(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.hangups:
			r.directory.Forget()
			r.accounts.Forget()
			r.privacy.Forget()
			// Reload has logged a failure, which Health reports until the file is good.
			if r.Reload() == nil {
				r.warn(ctx)
			}
		}
	}
}

// warn says of a policy what Slurm does not hold up.
func (r *authorization) warn(ctx context.Context) {
	named := r.State().Policy.Accounts()
	if len(named) == 0 {
		return
	}
	enforced, err := r.slurm.EnforcesAccounts(ctx)
	var lacks []string
	if err == nil && enforced {
		lacks, err = r.slurm.LacksAccounts(ctx, named)
	}
	switch {
	case err != nil && ctx.Err() == nil:
		r.log.Warn("policy names accounts, and slurmctld does not say whether it has and enforces them", "error", err)
	case err == nil && !enforced:
		r.log.Warn("policy names accounts, and slurmctld lets every user name any: set AccountingStorageEnforce=associations in slurm.conf")
	case len(lacks) > 0:
		r.log.Warn("policy names accounts that Slurm does not have: any account coordinator can create them", "accounts", lacks)
	}
}

// authorizeJob decides whether a job may use a profile. Its lookups do not queue behind those of callers.
func (r *authorization) authorizeJob(ctx context.Context, job kb.SlurmJob, ref kb.Ref) error {
	return r.AuthorizeJob(nss.ForJob(ctx), job, ref)
}

// verifier judges users' credentials; nil where nobody is to be known over the
// network.
func verifier(c config) *credential.Verifier {
	if c.Munge.Socket == "" {
		return nil
	}
	return credential.NewVerifier(credential.Options{Decoder: munge.New(c.Munge.Socket), Cluster: c.Cluster})
}
