// SPDX-License-Identifier: Apache-2.0

// Command kb-slurm stands for scontrol, squeue and scancel in kb-bench scale,
// under their names: it hands its words to the simulated slurmctld, on a socket
// beside it, and prints the answer. It is small, since thousands of it run.
package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	code, err := ask(os.Args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "kb-slurm:", err)
		code = 1
	}
	os.Exit(code)
}

func ask(words []string) (int, error) {
	dir, name := filepath.Split(words[0])
	conn, err := net.Dial("unix", dir+"slurmctld")
	if err != nil {
		return 1, err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, strings.Join(append([]string{name}, words[1:]...), "\x00")+"\x00"); err != nil {
		return 1, err
	}
	if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
		return 1, err
	}
	answer := bufio.NewReaderSize(conn, 1<<16)
	code, err := answer.ReadByte()
	if err != nil {
		return 1, err
	}
	to := os.Stdout
	if code != 0 {
		to = os.Stderr
	}
	_, err = answer.WriteTo(to)
	return int(code), err
}
