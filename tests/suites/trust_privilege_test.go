// SPDX-License-Identifier: Apache-2.0

//go:build lab

package suites

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// brokerFiles prints mode, owner and path of the broker's files.
var brokerFiles = []string{"find", "/var/lib/kernel-broker", "/run/kernel-broker", "-ignore_readdir_race", "-not", "-name", "broker.pid", "-printf", `%M %u:%g %p\n`}

// forOthers lists all of them that other users may read, enter or connect to.
var forOthers = map[string]string{
	"/var/lib/kernel-broker":                  "drwxr-xr-x",
	"/var/lib/kernel-broker/ca.pem":           "-rw-r--r--",
	"/var/lib/kernel-broker/catalog.snapshot": "-rw-r--r--",
	"/run/kernel-broker":                      "drwxr-xr-x",
	"/run/kernel-broker/broker.sock":          "srw-rw-rw-",
}

// The broker runs as in its unit, as far as that needs no systemd: its own user in no other group, without capabilities.
// Its files are its own. All other tests show that this suffices.
func leastPrivilege(c *cluster) {
	pid := c.must("root", "cat", "/run/kernel-broker/broker.pid")
	status := c.must("root", "cat", "/proc/"+pid+"/status")
	id := c.must("root", "id", "-u", "kernel-broker")
	for _, want := range []string{
		`Uid:(\t` + id + `){4}`, `Gid:(\t` + id + `){4}`, `Groups:\s*`, `NoNewPrivs:\t1`, `Umask:\t0027`,
		`CapInh:\t0+`, `CapPrm:\t0+`, `CapEff:\t0+`, `CapBnd:\t0+`, `CapAmb:\t0+`,
	} {
		if !regexp.MustCompile(`(?m)^` + want + `$`).MatchString(status) {
			c.t.Errorf("the broker's process has no %q in\n%s", want, status)
		}
	}
	seen := 0
	var folders []string // private ones; find prints them before their contents
	closed := func(path string) bool {
		return slices.ContainsFunc(folders, func(folder string) bool { return strings.HasPrefix(path, folder) })
	}
	for line := range strings.Lines(c.must("root", brokerFiles...) + "\n") {
		fields := strings.Fields(line)
		mode, owner, path := fields[0], fields[1], fields[2]
		want, others := forOthers[path]
		switch {
		case strings.HasPrefix(path, "/var/lib/kernel-broker/hook"):
			if owner != "slurm:slurm" || mode[7:] != "---" {
				c.t.Errorf("%s is for the hooks alone: %s %s", path, mode, owner)
			}
		case owner != "kernel-broker:kernel-broker":
			c.t.Errorf("%s belongs to %s", path, owner)
		case others && mode != want:
			c.t.Errorf("%s is %s, want %s", path, mode, want)
		case !others && strings.ContainsRune(mode[5:], 'w') && !closed(path):
			c.t.Errorf("%s is %s: writable by others", path, mode)
		case !others && mode[7:] != "---" && !closed(path):
			c.t.Errorf("%s is %s: readable by others", path, mode)
		}
		if others {
			seen++
		} else if mode[0] == 'd' && mode[7:] == "---" {
			folders = append(folders, path+"/")
		}
	}
	if seen != len(forOthers) {
		c.t.Errorf("%d of %d files that others need are there", seen, len(forOthers))
	}
	for _, secret := range []string{"/var/lib/kernel-broker/etcd/etcd", "/var/lib/kernel-broker/audit/head"} {
		for _, user := range []string{"alice", "slurm"} {
			if r := c.try(user, "ls", "-l", secret); r.Exit == 0 {
				c.t.Errorf("%s sees %s", user, secret)
			}
		}
	}
	for _, other := range []string{"/etc/munge/munge.key", "/etc/slurm/slurmdbd.conf"} {
		if r := c.try("kernel-broker", "cat", other); r.Exit == 0 {
			c.t.Errorf("the broker's user reads %s", other)
		}
	}
}

// docs/ops/trust.md's table of Slurm's levels, so that a site can give the broker's user only what it needs.
func adminLevels(c *cluster) {
	// As in the Ansible role.
	if out := c.must("root", "sacctmgr", "--noheader", "--parsable2", "show", "user", "name=kernel-broker", "format=adminlevel"); out != "Administrator" {
		c.t.Errorf("the broker's user is %q", out)
	}
	id := c.sbatch("alice", "--hold", "-N1")
	admin := [][]string{
		{"update", "nodename=n1", "state=drain", "reason=a try"}, {"update", "nodename=n1", "state=resume"},
		{"update", "jobid=" + id, "admincomment=a try"}, {"update", "jobid=" + id, "reboot=yes"},
	}
	// Tried only where they are refused, or n1 would boot. Every job with a kernel shows that they are permitted.
	reboot := [][]string{{"reboot", "ASAP", "nextstate=RESUME", "n1"}, {"cancel_reboot", "n1"}}
	operator := [][]string{
		{"hold", id}, {"update", "jobid=" + id, "requeue=0"},
		{"create", "reservation", "reservationname=try", "starttime=now+1hour", "duration=5", "users=alice", "nodes=n1"},
		{"delete", "reservationname=try"},
	}
	defer c.must("root", "scancel", id)
	for _, level := range []string{"None", "Operator", "Admin"} {
		c.sacctmgr("root", "modify", "user", "kernel-broker", "set", "adminlevel="+level)
		// The change reaches slurmctld by a message of slurmdbd's.
		c.wait(settleLimit, "the level to be "+level, func() bool {
			return c.slurmAllows(operator[0]) == (level != "None") && c.slurmAllows(admin[2]) == (level == "Admin")
		})
		// Before the first switch fails for it, and until it is mended.
		word := map[string]string{"Admin": "as Administrator's"}[level]
		c.wait(settleLimit, "the broker's health with the level "+level, func() bool {
			r := c.try("alice", "kernelctl", "health")
			return (r.Exit == 0) == (level == "Admin") && strings.Contains(r.Stdout, cmp.Or(word, `user "kernel-broker" has AdminLevel `+level))
		})
		for _, command := range reboot {
			if level != "Admin" && c.slurmAllows(command) {
				c.t.Errorf("level %s: scontrol %s: allowed", level, strings.Join(command, " "))
			}
		}
		for words, allowed := range map[*[][]string]bool{&operator: level != "None", &admin: level == "Admin"} {
			for _, command := range *words {
				if c.slurmAllows(command) != allowed {
					c.t.Errorf("level %s: scontrol %s: allowed is %t", level, strings.Join(command, " "), !allowed)
				}
			}
		}
	}
	c.settled()
}

// slurmAllows tries a Slurm command as the broker's user and checks whether it is permitted.
func (c *cluster) slurmAllows(words []string) bool {
	c.t.Helper()
	r := c.try("kernel-broker", append([]string{"scontrol"}, words...)...)
	text := strings.ToLower(r.Stdout + r.Stderr)
	denied := strings.Contains(text, "denied") || strings.Contains(text, "invalid user id")
	if r.Exit != 0 && !denied {
		c.t.Fatalf("scontrol %s: exit %d, %s", strings.Join(words, " "), r.Exit, text)
	}
	return r.Exit == 0
}
