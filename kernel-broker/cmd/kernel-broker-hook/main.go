// SPDX-License-Identifier: Apache-2.0

// Kernel-broker-hook is what slurmctld runs as PrologSlurmctld,
// EpilogSlurmctld and RebootProgram, under the names prolog-slurmctld,
// epilog-slurmctld and reboot.
package main

import (
	"os"

	"github.com/kernelbroker/kernelbroker/kernel-broker/hook"
)

// version is set by the linker.
var version = "devel"

func main() {
	os.Exit(hook.Run(hook.Invocation{
		Args: os.Args, Getenv: os.Getenv, Stdout: os.Stdout, Stderr: os.Stderr, Version: version, Exit: os.Exit,
	}))
}
