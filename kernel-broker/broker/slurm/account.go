// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/scontrol"
)

// Account returns a job's account. Users can write anything into it without AccountingStorageEnforce, and coordinators
// can create accounts of any name. So it is the only field of its query, in the last column.
func (c *Client) Account(ctx context.Context, job uint32) (string, error) {
	out, err := c.text(ctx, "Account", job)
	if err != nil {
		return "", err
	}
	return parseAccount(out, job)
}

// text is one record of a job, of its id and one field. Without --array squeue prints one for all tasks of an array that
// wait: there may be hundreds of thousands, and they share a record.
func (c *Client) text(ctx context.Context, field string, job uint32) (string, error) {
	return c.inTurn(ctx, field, job, scontrol.AskText(field, strconv.FormatUint(uint64(job), 10), scontrol.TextWidth))
}

// inTurn runs squeue about one job, and about a few at a time.
func (c *Client) inTurn(ctx context.Context, field string, job uint32, arguments []string) (string, error) {
	if err := c.jobTurns.Acquire(ctx, 1); err != nil {
		return "", fmt.Errorf("job %d: %s not read, %d other jobs are asked about: %w", job, field, jobsAtATime, err)
	}
	defer c.jobTurns.Release(1)
	out, _, err := c.run(ctx, c.squeue, arguments...)
	return out, err
}

func parseAccount(out string, job uint32) (string, error) {
	accounts, err := scontrol.Texts(out, job, scontrol.TextWidth)
	if err != nil {
		return "", err
	}
	for _, account := range accounts {
		if strings.Contains(account, "\n") || account != accounts[0] {
			return "", fmt.Errorf("job %d has an invalid account %.80q: %w", job, account, kb.ErrDenied)
		}
	}
	return accounts[0], nil
}

// AccountsOf returns the accounts in which a user may run jobs, never nil. slurmctld answers from its memory, which sees
// sacctmgr's changes at once, outlasts slurmdbd, and is what submits are checked against.
//
// Coordinators choose the names, including line breaks, and can thereby add entries. So a listed account must not grant
// anything; a missing one may deny.
func (c *Client) AccountsOf(ctx context.Context, user string, uid uint32) ([]string, error) {
	if strings.Contains(user, ",") {
		return nil, fmt.Errorf("user %q: Slurm's commands do not accept this name: %w", user, kb.ErrUnavailable)
	}
	all, err := c.associations(ctx, user)
	if err != nil {
		return nil, err
	}
	accounts := []string{}
	for _, a := range all {
		if strings.HasSuffix(a.owner, owns(uid)) && !slices.Contains(accounts, a.account) {
			accounts = append(accounts, a.account)
		}
	}
	return accounts, nil
}

// LacksAccounts returns those of the names that are no account to slurmctld.
func (c *Client) LacksAccounts(ctx context.Context, names []string) ([]string, error) {
	all, err := c.associations(ctx, "root") // lists accounts independent of the user
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.Contains(all, association{account: name})
	}), nil
}

// association is one that slurmctld has: of an account, or of a user in one.
type association struct{ account, owner string }

func (c *Client) associations(ctx context.Context, user string) ([]association, error) {
	out, _, err := c.run(ctx, c.scontrol, "show", "assoc_mgr", "flags=assoc", "users="+user)
	if err != nil {
		return nil, err
	}
	all := parseAssociations(out)
	if len(all) == 0 {
		return nil, fmt.Errorf("scontrol show assoc_mgr printed no association, not even root's: %w", kb.ErrUnavailable)
	}
	return all, nil
}

// parseAssociations reads the first line of each record. An account name with a line break is not readable.
func parseAssociations(out string) []association {
	var all []association
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "ClusterName=") {
			continue
		}
		_, rest, _ := strings.Cut(line, " Account=")
		at := strings.LastIndex(rest, " UserName=")
		if at < 0 {
			continue
		}
		if owner, _, is := strings.Cut(rest[at+len(" UserName="):], " Partition="); is {
			all = append(all, association{rest[:at], owner})
		}
	}
	return all
}

// EnforcesAccounts reports whether slurmctld lets users name only accounts that
// they have.
func (c *Client) EnforcesAccounts(ctx context.Context) (bool, error) {
	value, err := c.setting(ctx, "AccountingStorageEnforce")
	value = strings.ToLower(value)
	return strings.Contains(value, "associations") || strings.Contains(value, "limits") || strings.Contains(value, "all"), err
}

// Level returns how slurmctld classifies a user's commands: root, SlurmUser, or an AdminLevel. slurmctld refuses those
// of other users one by one when they are needed, so this is checked first: ErrDenied.
//
// slurmctld answers from its memory, which outlasts slurmdbd.
func (c *Client) Level(ctx context.Context, user string, uid uint32) (string, error) {
	if uid == 0 {
		return "root", nil
	}
	switch level, err := c.adminLevel(ctx, user, uid); level {
	case "SlurmUser", administrator:
		return level, nil
	case "":
		if err != nil {
			return "", err
		}
		return "", fmt.Errorf("slurmctld does not know user %q; switching nodes requires SlurmUser or an administrator (sacctmgr add user %s account=root adminlevel=Admin; without slurmdbd: run the broker as SlurmUser): %w",
			user, user, kb.ErrDenied)
	default:
		return "", fmt.Errorf("user %q has AdminLevel %s; switching nodes requires AdminLevel Admin (sacctmgr modify user %s set adminlevel=Admin): %w",
			user, level, user, kb.ErrDenied)
	}
}

// AdminLevels of slurmctld besides None.
const (
	operator      = "Operator"
	administrator = "Administrator"
)

// Operates reports whether slurmctld shows a user other users' objects: root, SlurmUser, or any AdminLevel.
func (c *Client) Operates(ctx context.Context, user string, uid uint32) (bool, error) {
	if uid == 0 {
		return true, nil
	}
	level, err := c.adminLevel(ctx, user, uid)
	return level == "SlurmUser" || level == operator || level == administrator, err
}

// adminLevel is "SlurmUser", or slurmctld's level of a user; empty for an unknown user.
func (c *Client) adminLevel(ctx context.Context, user string, uid uint32) (string, error) {
	owner := owns(uid)
	if slurmUser, err := c.setting(ctx, "SlurmUser"); err != nil {
		return "", err
	} else if strings.HasSuffix(slurmUser, owner) {
		return "SlurmUser", nil
	}
	if strings.Contains(user, ",") {
		return "", fmt.Errorf("user %q: Slurm's commands do not accept this name: %w", user, kb.ErrUnavailable)
	}
	out, _, err := c.run(ctx, c.scontrol, "show", "assoc_mgr", "flags=users", "users="+user)
	return parseLevel(out, user+owner), err
}

// PrivateJobs reports whether slurmctld hides other users' jobs from plain users.
func (c *Client) PrivateJobs(ctx context.Context) (bool, error) {
	value, err := c.setting(ctx, "PrivateData")
	return err == nil && slices.ContainsFunc(strings.Split(strings.ToLower(value), ","), func(what string) bool {
		return what == "jobs" || what == "all"
	}), err
}

// parseLevel reads the record of a user, named as NAME(UID).
func parseLevel(out, user string) string {
	for line := range strings.Lines(out) {
		rest, is := strings.CutPrefix(strings.TrimSpace(line), "UserName="+user+" ")
		if at := strings.LastIndex(rest, "AdminLevel="); is && at >= 0 {
			return rest[at+len("AdminLevel="):]
		}
	}
	return ""
}

// owns is how Slurm writes a uid behind a name.
func owns(uid uint32) string { return "(" + strconv.FormatUint(uint64(uid), 10) + ")" }

// setting reads a value of slurmctld's configuration.
func (c *Client) setting(ctx context.Context, name string) (string, error) {
	config, _, err := c.run(ctx, c.scontrol, "show", "config")
	if err != nil {
		return "", err
	}
	return configured(config, name)
}

// configured reads a value of scontrol show config.
func configured(config, name string) (string, error) {
	for line := range strings.Lines(config) {
		if key, value, ok := strings.Cut(line, "="); ok && strings.EqualFold(strings.TrimSpace(key), name) {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("%w %s: %w", errNoSetting, name, kb.ErrUnavailable)
}

var errNoSetting = errors.New("scontrol show config printed no")

const (
	// keepSettings is how long a setting is used: a reconfigure may change it.
	keepSettings = 5 * time.Minute
	// resumeTimeoutRetry is the wait after a failed query.
	resumeTimeoutRetry = 10 * time.Second
)

// resumeTimeout is how long slurmctld waits for a node's boot; 0 if unknown.
func (c *Client) resumeTimeout(ctx context.Context) time.Duration {
	timeout, _ := c.timeouts.GetOrLast(ctx, struct{}{}, resumeTimeoutRetry, func(ctx context.Context) (time.Duration, time.Duration, error) {
		value, err := c.setting(ctx, "ResumeTimeout") // "60 sec"
		number, _, _ := strings.Cut(value, " ")
		seconds, perr := strconv.ParseUint(number, 10, 31)
		if perr != nil {
			seconds = 0
		}
		return time.Duration(seconds) * time.Second, keepSettings, err
	})
	return timeout
}

// UndoPrologDrain removes the drain that slurmctld set for a failed prolog, if it is still the one given at by. If the
// site has its own prolog that may have failed, it returns ErrFailedPrecondition.
func (c *Client) UndoPrologDrain(ctx context.Context, node, by string) error {
	config, _, err := c.run(ctx, c.scontrol, "show", "config")
	if err != nil {
		return err
	}
	if err := onlyTheGate(config, by); err != nil {
		return fmt.Errorf("node %q stays drained: %w", node, err)
	}
	nodes, err := c.Nodes(ctx, []string{node})
	if err != nil {
		return err
	}
	n, ok := nodes[node]
	if !ok {
		return fmt.Errorf("scontrol show node %s printed no such node: %w", node, kb.ErrUnavailable)
	}
	if !n.Drained() || n.PlainReason() != kb.ReasonProlog || n.By != by {
		return nil // already resumed
	}
	return c.change(ctx, "update", "nodename="+node, "state=undrain")
}

// onlyTheGate rejects configurations where something other than a SPANK plugin runs before jobs on nodes, and reasons
// that slurmctld did not set.
func onlyTheGate(config, by string) error {
	owner, err := configured(config, "SlurmUser")
	if err != nil {
		return err
	}
	user, _, _ := strings.Cut(owner, "(")
	if who, _, _ := strings.Cut(by, "@"); who != user {
		return fmt.Errorf("%q gave the reason, not slurmctld's user %q: %w", who, user, kb.ErrFailedPrecondition)
	}
	for line := range strings.Lines(strings.ToLower(config)) {
		key, value, _ := strings.Cut(line, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if value == "" || value == "(null)" {
			continue
		}
		// 24.05 and later list several as prolog[0], prolog[1].
		if key == "prolog" || strings.HasPrefix(key, "prolog[") {
			return fmt.Errorf("the site's own Prolog %s may have failed too: %w", value, kb.ErrFailedPrecondition)
		}
		if key == "prepplugins" && value != "prep/script" && value != "script" {
			return fmt.Errorf("the site's PrEp plugin may have failed too (%s): %w", value, kb.ErrFailedPrecondition)
		}
	}
	return nil
}
