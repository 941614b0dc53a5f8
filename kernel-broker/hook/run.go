// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/api/client"
)

// The hooks, by their names in slurm.conf.
const (
	prologName = "prolog-slurmctld"
	epilogName = "epilog-slurmctld"
	rebootName = "reboot"
)

// profilingName is the log name of prolog-slurmctld for a job that requests profiling but no kernel.
const profilingName = "profiling"

const usage = `usage: prolog-slurmctld | epilog-slurmctld | reboot NODES
       kernel-broker-hook NAME [--config FILE] [NODES]

What slurmctld runs for each job: as PrologSlurmctld, EpilogSlurmctld and
RebootProgram in slurm.conf. The program name or the first argument selects the
hook. Its input is slurmctld's environment and ` + client.DefaultPath + `.

exit codes:
  0  continue, or the job is requeued; the only one of epilog-slurmctld and reboot
  1  the job must not start (prolog-slurmctld), and scontrol did not requeue it:
     slurmctld requeues or ends it
  2  wrong usage
`

// Limits of what slurmctld waits for.
const (
	// A reconfigure of 24.11 kills EpilogSlurmctld where one runs, and slurmctld
	// crashes when its job was requeued: a hint is not worth a long wait.
	epilogLimit = time.Second
	// 22.05 holds up to 12 of its 256 agent threads for RebootProgram.
	rebootLimit = 3 * time.Second
	// unreadLimit is for a prolog without settings, which calls Slurm four times.
	unreadLimit = 4*scontrolLimit + 5*time.Second
)

// Invocation is how the process was called.
type Invocation struct {
	Args    []string // with the program's name
	Getenv  func(string) string
	Stdout  io.Writer
	Stderr  io.Writer
	Version string
	// Exit ends the process at once, so that time limits hold even if something hangs.
	Exit func(code int)
}

// Run executes the invocation and returns the exit code.
func Run(i Invocation) int {
	name, arguments := filepath.Base(i.Args[0]), i.Args[1:]
	if !slices.Contains([]string{prologName, epilogName, rebootName}, name) {
		name = ""
		if len(arguments) > 0 {
			name, arguments = arguments[0], arguments[1:]
		}
	}
	switch name {
	case prologName, epilogName:
		// Most jobs end here.
		if !wantsKernel(i.Getenv) {
			if name == epilogName || !wantsProfiling(i.Getenv) {
				return 0
			}
			name = profilingName
		}
	case rebootName:
	case "--version":
		_, _ = fmt.Fprintln(i.Stdout, i.Version)
		return 0
	default:
		_, _ = fmt.Fprint(i.Stderr, usage)
		if name == "--help" || name == "-h" {
			return 0
		}
		return 2
	}
	return i.run(name, arguments)
}

func (i Invocation) run(name string, arguments []string) int {
	path, rest := configPath(arguments)
	config, err := client.LoadConfig(path)
	if err != nil {
		config = client.FallbackConfig(path)
	}
	log, done := openLog(i.Stderr, config.LogFile, name)
	defer done()
	if err != nil {
		log.Error("settings not read", "error", err)
		if name != prologName {
			return 0
		}
		defer i.bound(unreadLimit, 1, log)()
		return failProlog(config, i.Getenv, log, err)
	}
	switch name {
	case prologName:
		defer i.bound(config.PrologLimit+10*time.Second, 1, log)()
		return runProlog(config, i.Getenv, log)
	case profilingName:
		defer i.bound(config.ProfilingWait+time.Second, 0, log)()
		runProfiling(config, i.Getenv, log)
	case epilogName:
		defer i.bound(epilogLimit+time.Second, 0, log)()
		runEpilog(config, i.Getenv, log)
	case rebootName:
		defer i.bound(rebootLimit, 0, log)()
		runReboot(config, rest, log)
	}
	return 0
}

// bound ends the process should the hook itself not end in time.
func (i Invocation) bound(limit time.Duration, code int, log *slog.Logger) (stop func()) {
	timer := time.AfterFunc(limit, func() {
		log.Error("hook did not end in time", "limit", limit.String())
		i.Exit(code)
	})
	return func() { timer.Stop() }
}

// configPath removes --config from the arguments.
func configPath(arguments []string) (path string, rest []string) {
	path = client.DefaultPath
	for n := 0; n < len(arguments); n++ {
		if value, ok := strings.CutPrefix(arguments[n], "--config="); ok {
			path = value
		} else if arguments[n] == "--config" && n+1 < len(arguments) {
			n++
			path = arguments[n]
		} else {
			rest = append(rest, arguments[n])
		}
	}
	return path, rest
}
