// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
)

// Mode is how the lab gets its namespaces.
type Mode string

const (
	// ModeRoot: plain namespaces, users are real ids.
	ModeRoot Mode = "root"
	// ModeSubuid: a user namespace with the caller's range of /etc/subuid, so
	// that several users exist in it.
	ModeSubuid Mode = "subuid"
	// ModeSingle: a user namespace with the caller's id only: everything on
	// the front-end is one user, alice.
	ModeSingle Mode = "single"
)

// wantedIDs is how many ids the lab's users span (nobody is 65534).
const wantedIDs = 65536

// account is one line of the lab's passwd; the group has the same name and id.
type account struct {
	Name  string `json:"name"`
	ID    int    `json:"id"`
	Home  string `json:"home"`
	Shell string `json:"shell"`
}

func (a account) person() bool { return strings.HasPrefix(a.Home, "/home/") }

// detectMode finds the best mode available to the caller.
func detectMode() (Mode, error) {
	if os.Geteuid() == 0 {
		return ModeRoot, nil
	}
	me, err := user.Current()
	if err != nil {
		return "", fmt.Errorf("current user: %w", err)
	}
	for _, program := range []string{"newuidmap", "newgidmap"} {
		if _, err := exec.LookPath(program); err != nil {
			return ModeSingle, nil
		}
	}
	for _, file := range []string{"/etc/subuid", "/etc/subgid"} {
		text, err := os.ReadFile(file)
		if err != nil || !hasRange(text, me.Username, me.Uid) {
			return ModeSingle, nil
		}
	}
	return ModeSubuid, nil
}

// hasRange reports whether a subuid(5) file gives the user enough ids.
func hasRange(text []byte, name, uid string) bool {
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		f := strings.Split(s.Text(), ":")
		if len(f) != 3 || (f[0] != name && f[0] != uid) {
			continue
		}
		if n, err := strconv.Atoi(f[2]); err == nil && n >= wantedIDs {
			return true
		}
	}
	return false
}

// accounts are the users of the lab, the same on front-end and nodes.
func accounts(m Mode, uid int) []account {
	const no = "/usr/sbin/nologin"
	root := account{"root", 0, "/root", "/bin/bash"}
	nobody := account{"nobody", 65534, "/nonexistent", no}
	if m == ModeSingle {
		return []account{root, nobody, {"alice", uid, "/home/alice", "/bin/bash"}}
	}
	return []account{
		root, nobody,
		{"munge", 110, "/nonexistent", no},
		{"mysql", 111, "/nonexistent", no},
		{"slurm", 64030, "/nonexistent", no},
		{"kernel-broker", 64031, "/nonexistent", no},
		{"slurmrestd", 64032, "/nonexistent", no},
		{"alice", 20001, "/home/alice", "/bin/bash"},
		{"bob", 20002, "/home/bob", "/bin/bash"},
	}
}

// service is the user of a daemon: the only one in single mode.
func service(m Mode, name string) string {
	if m == ModeSingle {
		return "alice"
	}
	return name
}

// brokerUser is the broker's user: its own if Slurm has administrator levels, otherwise SlurmUser.
func brokerUser(o Options, m Mode) string {
	if o.Slurm.Accounting {
		return service(m, "kernel-broker")
	}
	return service(m, "slurm")
}

func passwdFile(list []account) string {
	var b strings.Builder
	for _, a := range list {
		fmt.Fprintf(&b, "%s:x:%d:%d:%s:%s:%s\n", a.Name, a.ID, a.ID, a.Name, a.Home, a.Shell)
	}
	return b.String()
}

func groupFile(list []account) string {
	var b strings.Builder
	for _, a := range list {
		name := a.Name
		if name == "nobody" {
			name = "nogroup"
		}
		fmt.Fprintf(&b, "%s:x:%d:\n", name, a.ID)
	}
	return b.String()
}

func findAccount(list []account, name string) (account, error) {
	var names []string
	for _, a := range list {
		if a.Name == name {
			return a, nil
		}
		names = append(names, a.Name)
	}
	return account{}, fmt.Errorf("user %q: this lab has %s", name, strings.Join(names, ", "))
}
