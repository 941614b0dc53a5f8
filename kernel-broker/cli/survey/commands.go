// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"errors"
	"io/fs"
	"maps"
	"os/exec"
	"slices"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/config"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/client"
	"github.com/kernelbroker/kernelbroker/kernel-broker/doctor"
)

// missing are the programs that cannot be run here, of those that a configuration has by its keys.
func missing(commands map[string]string) []doctor.Command {
	var list []doctor.Command
	for _, key := range slices.Sorted(maps.Keys(commands)) {
		program := commands[key]
		if program == "" {
			continue
		}
		_, err := exec.LookPath(program)
		var path *fs.PathError
		switch {
		case errors.As(err, &path):
			err = path.Err
		case errors.Unwrap(err) != nil:
			err = errors.Unwrap(err)
		}
		if err != nil {
			list = append(list, doctor.Command{Key: key, Error: program + ": " + err.Error()})
		}
	}
	return list
}

func first(command []string) string {
	if len(command) == 0 {
		return ""
	}
	return command[0]
}

// agentCommands leaves out kexec.program, which has a check of its own.
func agentCommands(c config.Config) map[string]string {
	return map[string]string{
		"slurmd.start": first(c.Slurmd.Start), "slurmd.first_start": first(c.Slurmd.FirstStart), "slurmd.stop": first(c.Slurmd.Stop),
		"slurmd.scontrol": c.Slurmd.Scontrol, "kexec.before": first(c.Kexec.Before), "kexec.execute": first(c.Kexec.Execute),
		"reboot.command": first(c.Reboot.Command),
	}
}

// hookCommands are what Slurm's hooks run.
func hookCommands(c client.Config) map[string]string {
	return map[string]string{"scontrol": c.Scontrol, "reboot_program": c.RebootProgram}
}
