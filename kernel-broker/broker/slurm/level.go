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

// Level returns as what slurmctld takes a user's commands: root, SlurmUser, or
// one with an AdminLevel. Those of anybody else it refuses, one by one and when
// they are needed, so that this is asked before: kernelbroker.ErrDenied.
//
// slurmctld says so out of its memory, which outlasts slurmdbd.
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
		return "", fmt.Errorf("slurmctld does not know user %q, and takes the commands of switches from SlurmUser and administrators alone (sacctmgr add user %s account=root adminlevel=Admin; without slurmdbd: run the broker as SlurmUser): %w",
			user, user, kb.ErrDenied)
	default:
		return "", fmt.Errorf("user %q has AdminLevel %s, and slurmctld takes the commands of switches from administrators alone (sacctmgr modify user %s set adminlevel=Admin): %w",
			user, level, user, kb.ErrDenied)
	}
}

// Levels that slurmctld has for users, besides None.
const (
	operator      = "Operator"
	administrator = "Administrator"
)

// Operates reports whether slurmctld shows a user what belongs to others: as
// root, SlurmUser, or one with an AdminLevel.
func (c *Client) Operates(ctx context.Context, user string, uid uint32) (bool, error) {
	if uid == 0 {
		return true, nil
	}
	level, err := c.adminLevel(ctx, user, uid)
	return level == "SlurmUser" || level == operator || level == administrator, err
}

// adminLevel is "SlurmUser", or the level that slurmctld has for a user; empty
// for one that it does not know.
func (c *Client) adminLevel(ctx context.Context, user string, uid uint32) (string, error) {
	config, _, err := c.run(ctx, c.scontrol, "show", "config")
	if err != nil {
		return "", err
	}
	owner := owns(uid)
	if slurmUser, found := configured(config, "SlurmUser"); !found {
		return "", fmt.Errorf("scontrol show config printed no SlurmUser: %w", kb.ErrUnavailable)
	} else if strings.HasSuffix(slurmUser, owner) {
		return "SlurmUser", nil
	}
	if strings.Contains(user, ",") {
		return "", fmt.Errorf("user %q: Slurm's commands cannot ask for that name: %w", user, kb.ErrUnavailable)
	}
	out, _, err := c.run(ctx, c.scontrol, "show", "assoc_mgr", "flags=users", "users="+user)
	return parseLevel(out, user+owner), err
}

// PrivateJobs reports whether slurmctld shows plain users no jobs but their own.
func (c *Client) PrivateJobs(ctx context.Context) (bool, error) {
	config, _, err := c.run(ctx, c.scontrol, "show", "config")
	if err != nil {
		return false, err
	}
	value, found := configured(config, "PrivateData")
	if !found {
		return false, fmt.Errorf("scontrol show config printed no PrivateData: %w", kb.ErrUnavailable)
	}
	return slices.ContainsFunc(strings.Split(strings.ToLower(value), ","), func(what string) bool {
		return what == "jobs" || what == "all"
	}), nil
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

// configured reads a value of scontrol show config.
func configured(config, name string) (string, bool) {
	for line := range strings.Lines(config) {
		if key, value, ok := strings.Cut(line, "="); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value), true
		}
	}
	return "", false
}
