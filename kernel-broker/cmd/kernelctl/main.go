// SPDX-License-Identifier: Apache-2.0

// Kernelctl manages profiles, kernels, nodes and jobs of Kernel Broker. All commands are in package cli; this package
// connects it to the process.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/term"

	"github.com/kernelbroker/kernelbroker/kernel-broker/api/client"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/munge"
	"github.com/kernelbroker/kernelbroker/kernel-broker/cli"
)

// version is set by the linker.
var version = "devel"

func main() {
	// A command that changed something for its time puts it back, also when its terminal is gone.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	code := cli.Run(ctx, cli.Invocation{
		Args: os.Args[1:], Getenv: os.Getenv, Stdout: os.Stdout, Stderr: os.Stderr, Version: version,
		Terminal: term.IsTerminal(int(os.Stderr.Fd())), Width: width(), Confirm: confirm(),
		Munge: func(socket string) client.Encoder { return munge.New(socket) },
	})
	stop()
	os.Exit(code)
}

// width of the terminal that stdout is, 0 if it is none.
func width() int {
	columns, _, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil {
		return 0
	}
	return columns
}

// confirm asks on the terminal, if there is one to ask and to be answered on.
func confirm() func(context.Context, string) bool {
	if !term.IsTerminal(int(os.Stdin.Fd())) || !term.IsTerminal(int(os.Stderr.Fd())) {
		return nil
	}
	return func(ctx context.Context, question string) bool {
		_, _ = fmt.Fprint(os.Stderr, question)
		lines := make(chan string, 1)
		go func() {
			line, _ := bufio.NewReader(os.Stdin).ReadString('\n') // an end of input is a no
			lines <- strings.ToLower(strings.TrimSpace(line))
		}()
		select {
		case <-ctx.Done(): // an interrupt is a no; the reader ends with the process
			_, _ = fmt.Fprintln(os.Stderr)
			return false
		case answer := <-lines:
			return answer == "y" || answer == "yes"
		}
	}
}
