// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"crypto/rand"
	"fmt"
	"strings"
)

// Slurm's REST interface as at a site: a daemon with its own user, to which users authenticate with tokens from
// slurmctld.

// RESTAddress is where slurmrestd listens, as the lab's network sees it.
const RESTAddress = frontAddress + ":6820"

// restSettings are the lines of slurm.conf.
func restSettings(o Options) []setting {
	if !o.Slurm.REST {
		return nil
	}
	return []setting{{"AuthAltTypes", "auth/jwt"}}
}

// writeTokenKey creates the key that signs users' tokens, at slurmctld's default path. No node has it.
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
	// Without a token of its own it can only present its callers'.
	launch := fmt.Sprintf("SLURM_JWT=daemon exec /usr/sbin/slurmrestd -v -a rest_auth/jwt %s", RESTAddress)
	return Daemon{
		lab: l, name: "slurmrestd", user: service(l.state.Mode, "slurmrestd"),
		argv:    []string{"/bin/sh", "-c", launch},
		pidFile: "/run/slurmrestd/slurmrestd.pid", log: "slurmrestd/slurmrestd.log",
		ready: []string{"/bin/bash", "-c", "</dev/tcp/" + strings.Replace(RESTAddress, ":", "/", 1)},
	}
}
