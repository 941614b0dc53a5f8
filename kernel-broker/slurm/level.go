package slurm

import (
	"context"
	"fmt"
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
	out, _, err := c.run(ctx, c.scontrol, "show", "assoc_mgr", "flags=users", "users="+user)
	if err != nil {
		return "", err
	}
	switch level := parseLevel(out, user+owner); level {
	case "Administrator":
		return level, nil
	case "":
		return "", fmt.Errorf("slurmctld does not know user %q, and takes the commands of switches from SlurmUser and administrators alone (sacctmgr add user %s account=root adminlevel=Admin; without slurmdbd: run the broker as SlurmUser): %w",
			user, user, kb.ErrDenied)
	default:
		return "", fmt.Errorf("user %q has AdminLevel %s, and slurmctld takes the commands of switches from administrators alone (sacctmgr modify user %s set adminlevel=Admin): %w",
			user, level, user, kb.ErrDenied)
	}
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
