// SPDX-License-Identifier: Apache-2.0

// Testresults keeps what test runs said and adds it up.
//
// A test that did not run proves nothing, and the usual outputs hide it: `go
// test` is green when everything skipped, and a crashed C test program is only
// a short list. So every run goes through this program, which shows it to the
// reader, keeps the machine-readable stream in a file, and later counts all
// the files together: Go's JSON events, TAP, and the steps that `.ci/step`
// recorded. A skip fails the sum unless a list names it with a reason.
//
//	testresults go  -o FILE.jsonl [-v] -- ./... [go test flags]
//	testresults tap -o FILE.tap   [-v] -- COMMAND...
//	testresults sum [-expect a,b] [-allow FILE] [-make-status N] DIR
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

var errFailed = errors.New("tests failed")

func main() {
	err := run(os.Args[1:], os.Stdout, os.Stderr)
	var exit *exec.ExitError
	switch {
	case err == nil:
	case errors.Is(err, errFailed):
		os.Exit(1)
	case errors.As(err, &exit):
		os.Exit(max(exit.ExitCode(), 1))
	default:
		fmt.Fprintln(os.Stderr, "testresults:", err)
		os.Exit(2)
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		return errors.New("want one of: go, tap, sum")
	}
	flags := flag.NewFlagSet("testresults "+args[0], flag.ContinueOnError)
	flags.SetOutput(stderr)
	switch args[0] {
	case "go", "tap":
		out := flags.String("o", "", "the `file` that keeps the stream")
		verbose := flags.Bool("v", false, "show passing tests too")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		if *out == "" || flags.NArg() == 0 {
			return errors.New("want -o FILE and a command")
		}
		if args[0] == "go" {
			command := append([]string{"go", "test", "-json"}, flags.Args()...)
			return record(*out, command, newGoPrinter(stdout, *verbose), stderr)
		}
		return record(*out, flags.Args(), newTAPPrinter(stdout, *verbose), stderr)
	case "sum":
		expect := flags.String("expect", "", "comma list of results that must be there and not be empty")
		allow := flags.String("allow", "", "`file` of the skips that are in order")
		status := flags.Int("make-status", 0, "exit status of the run being summed up")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		if flags.NArg() != 1 {
			return errors.New("sum wants one directory")
		}
		return summarise(summaryOptions{
			dir:        flags.Arg(0),
			expect:     strings.FieldsFunc(*expect, func(r rune) bool { return r == ',' }),
			allowFile:  *allow,
			makeStatus: *status,
		}, stdout)
	}
	return fmt.Errorf("unknown command %q: want go, tap or sum", args[0])
}
