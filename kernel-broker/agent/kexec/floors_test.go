// SPDX-License-Identifier: Apache-2.0

package kexec

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"
)

// In the child the floor rises for as long as it lives.
func TestMain(m *testing.M) {
	path := os.Getenv("TRUST_TEST_STATE")
	if path == "" {
		os.Exit(m.Run())
	}
	for {
		memory, err := readMemory(path)
		if err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		floors := map[string]uint32{"mitgcm": memory.Floors["mitgcm"] + 1}
		memory.Floors = floors
		if err := writeMemory(path, memory); err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		os.Stdout.WriteString(strconv.Itoa(int(floors["mitgcm"])) + "\n")
	}
}

// An agent may be killed at any instant: its memory survives, and the file is always readable.
func TestMemorySurvivesKill(t *testing.T) {
	path := t.TempDir() + "/trust.state"
	last := uint32(0)
	for round := range 25 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), "TRUST_TEST_STATE="+path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		raw := make([]byte, 64)
		n, err := out.Read(raw) // it has written at least once
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(round) * 200 * time.Microsecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != -1 {
			t.Fatalf("child: %v, said %q", err, raw[:n])
		}
		memory, err := readMemory(path)
		if err != nil || memory.Floors["mitgcm"] <= last {
			t.Fatalf("round %d: %+v, %v, before %d", round, memory, err, last)
		}
		last = memory.Floors["mitgcm"]
	}
}
