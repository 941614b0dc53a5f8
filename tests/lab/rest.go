// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"crypto/rand"
	"fmt"
	"strings"
)

// Slurm's REST interface as a site has it: a daemon of a user of its own, to
// which users come with tokens that slurmctld made for them.

// RESTAddress is where slurmrestd listens, as the lab's network sees it.
const RESTAddress = frontAddress + ":6820"

// restSettings are the lines of slurm.conf.
func restSettings(o Options) []setting {
	if !o.Slurm.REST {
		return nil
	}
	return []setting{{"AuthAltTypes", "auth/jwt"}}
}

// writeTokenKey makes the key that signs users' tokens, where slurmctld looks for
// it by itself. No node has it.
func (l *Lab) writeTokenKey() error {
	if !l.state.Options.Slurm.REST {
		return nil
	}
	key := make([]byte, 32)
	rand.Read(key)
	return write(l.layout.path("var/lib/slurm/slurmctld/jwt_hs256.key"), string(key), 0o600)
}

// Slurmrestd returns the handle of slurmrestd, which a lab has with
// SlurmOptions.REST.
func (l *Lab) Slurmrestd() Daemon {
	// Without a token of its own it has nothing to show to slurmctld but its
	// callers'.
	launch := fmt.Sprintf("SLURM_JWT=daemon exec /usr/sbin/slurmrestd -v -a rest_auth/jwt %s", RESTAddress)
	return Daemon{
		lab: l, name: "slurmrestd", user: service(l.state.Mode, "slurmrestd"),
		argv:    []string{"/bin/sh", "-c", launch},
		pidFile: "/run/slurmrestd/slurmrestd.pid", log: "slurmrestd/slurmrestd.log",
		ready: []string{"/bin/bash", "-c", "</dev/tcp/" + strings.Replace(RESTAddress, ":", "/", 1)},
	}
}
