// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bufio"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// writerVariable has the test's program write a log until it is killed.
const writerVariable = "AUDIT_TEST_WRITER"

// lazyVariable has it wait for no record.
const lazyVariable = "AUDIT_TEST_LAZY"

func TestMain(m *testing.M) {
	if dir := os.Getenv(writerVariable); dir != "" {
		writeForever(dir)
	}
	if dir := os.Getenv(fullVariable); dir != "" {
		if err := writeUntilFull(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if dir := os.Getenv(behindVariable); dir != "" {
		if err := goOnLate(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func writeForever(dir string) {
	l, err := Open(Options{Dir: dir, MaxBytes: 20_000, Log: slog.New(slog.DiscardHandler)})
	for err == nil {
		var seq uint64
		if seq, err = l.Append(Entry{Kind: "x", Object: strings.Repeat("y", 300)}, os.Getenv(lazyVariable) == ""); err == nil {
			fmt.Println(seq)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// A writer that is killed at any instant loses nothing that it said was
// written, and leaves a log on which the next one goes on.
func TestKilledWriters(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	for round := range 6 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), writerVariable+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		said, lines := "", bufio.NewScanner(out)
		for i := 0; i < 40+7*round && lines.Scan(); i++ {
			said = lines.Text()
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
			said = lines.Text()
		}
		_ = cmd.Wait() // it was killed
		last, err := strconv.ParseUint(said, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		r := verify(t, dir)
		if got, err := ParseHead(r.Last); err != nil || !r.Sound() || got.Seq < last {
			t.Fatalf("said %d, there is %+v, %v", last, r, err)
		}
	}
}
