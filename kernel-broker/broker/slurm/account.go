// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Widths of squeue's columns. Slurm limits accounts to 1024 bytes and comments to less, so no value is cut to look like
// another one. All records have one length, whatever line breaks they contain.
const (
	idWidth     = 12
	textWidth   = 1100
	recordWidth = idWidth + textWidth + len("\n")
)

// Account returns a job's account. Users can write anything into it without AccountingStorageEnforce, and coordinators
// can create accounts of any name. So it is the only field of its query, in the last column.
func (c *Client) Account(ctx context.Context, job uint32) (string, error) {
	out, err := c.texts(ctx, "Account", job)
	if err != nil {
		return "", err
	}
	return parseAccount(out, job)
}

// texts are records of jobs' ids and one field.
func (c *Client) texts(ctx context.Context, field string, jobs ...uint32) (string, error) {
	out, _, err := c.run(ctx, c.squeue, "--noheader", "--array", "--all", "--states=all",
		"--jobs="+listed(jobs), fmt.Sprintf("--Format=JobID:%d,%s:%d", idWidth, field, textWidth))
	return out, err
}

func listed(jobs []uint32) string {
	list := make([]string, len(jobs))
	for i, id := range jobs {
		list[i] = strconv.FormatUint(uint64(id), 10)
	}
	return strings.Join(list, ",")
}

// parseTexts reads the records of a job among those of its array or heterogeneous job. At least one exists.
func parseTexts(out string, job uint32) (texts []string, err error) {
	for len(out) > 0 {
		if len(out) < recordWidth || out[recordWidth-1] != '\n' {
			return nil, fmt.Errorf("job %d: squeue printed %.80q: %w", job, out, kb.ErrUnavailable)
		}
		record := out[:recordWidth-1]
		out = out[recordWidth:]
		id, err := strconv.ParseUint(strings.TrimSpace(record[:idWidth]), 10, 32)
		if err != nil {
			return nil, fmt.Errorf("job %d: squeue printed %.80q: %w", job, record, kb.ErrUnavailable)
		}
		if uint32(id) != job {
			continue
		}
		text := strings.TrimRight(record[idWidth:], " ")
		if text == "(null)" {
			text = ""
		}
		texts = append(texts, text)
	}
	if len(texts) == 0 {
		return nil, fmt.Errorf("job %d is not in slurmctld: %w", job, kb.ErrUnavailable)
	}
	return texts, nil
}

func parseAccount(out string, job uint32) (string, error) {
	accounts, err := parseTexts(out, job)
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
