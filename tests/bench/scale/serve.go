// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// commands are the names under which kb-slurm stands for Slurm's programs, and socket is where it finds slurmctld, in the
// folder with these names.
var commands = []string{"scontrol", "squeue", "scancel"}

const socket = "slurmctld"

// runner answers a command; an error is a refusal.
type runner func(program string, words []string) (string, error)

// serveCommands makes a folder of Slurm's commands, each of them program, and answers them until the listener is closed.
func serveCommands(dir, program string, run runner) (net.Listener, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for _, name := range commands {
		if err := os.Symlink(program, filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("unix", filepath.Join(dir, socket))
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go answer(conn, run)
		}
	}()
	return l, nil
}

// answer reads a command's words, each with a zero byte behind it, and says its exit code in one byte and then what it
// prints.
func answer(conn net.Conn, run runner) {
	defer conn.Close()
	text, err := io.ReadAll(conn)
	words := strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
	if err != nil || len(words) < 2 {
		return
	}
	out, err := run(words[0], words[1:])
	if err != nil {
		out = "\x01" + words[0] + ": error: " + err.Error() + "\n"
	} else {
		out = "\x00" + out
	}
	_, _ = io.WriteString(conn, out) // a command that was ended reads no more
}
