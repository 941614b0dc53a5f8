package slurm

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Widths of squeue's columns. Slurm takes no account of more than 1024 bytes,
// so that none is cut to what looks like another.
const (
	idWidth      = 12
	accountWidth = 1100
)

// Account returns a job's account. Without AccountingStorageEnforce users can
// write anything into it, which is why it is asked for by itself: whatever is in
// it ends in a column behind which there is none.
func (c *Client) Account(ctx context.Context, job uint32) (string, error) {
	out, _, err := c.run(ctx, c.squeue, "--noheader", "--array", "--all", "--states=all",
		"--jobs="+strconv.FormatUint(uint64(job), 10), fmt.Sprintf("--Format=JobID:%d,Account:%d", idWidth, accountWidth))
	if err != nil {
		return "", err
	}
	return parseAccount(out, job)
}

// parseAccount reads the lines of a job among those of its array or of the
// heterogeneous job that it is part of. Lines that do not agree are an account
// with a line break in it.
func parseAccount(out string, job uint32) (string, error) {
	account, found := "", false
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		if len(line) < idWidth {
			return "", fmt.Errorf("job %d: squeue line %.80q: %w", job, line, kb.ErrUnavailable)
		}
		id, err := strconv.ParseUint(strings.TrimSpace(line[:idWidth]), 10, 32)
		if err != nil {
			return "", fmt.Errorf("job %d: squeue line %.80q: %w", job, line, kb.ErrUnavailable)
		}
		if uint32(id) != job {
			continue
		}
		text := strings.TrimRight(line[idWidth:], " ")
		if found && text != account {
			return "", fmt.Errorf("job %d has an account that is none: %w", job, kb.ErrDenied)
		}
		account, found = text, true
	}
	if !found {
		return "", fmt.Errorf("job %d is not in slurmctld: %w", job, kb.ErrUnavailable)
	}
	if account == "(null)" {
		account = ""
	}
	return account, nil
}

// EnforcesAccounts reports whether slurmctld lets users name only accounts that
// they have.
func (c *Client) EnforcesAccounts(ctx context.Context) (bool, error) {
	out, _, err := c.run(ctx, c.scontrol, "show", "config")
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(out) {
		if key, value, ok := strings.Cut(line, "="); ok && strings.TrimSpace(key) == "AccountingStorageEnforce" {
			value = strings.ToLower(strings.TrimSpace(value))
			return strings.Contains(value, "associations") || strings.Contains(value, "limits") || strings.Contains(value, "all"), nil
		}
	}
	return false, nil
}
