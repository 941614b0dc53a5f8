// SPDX-License-Identifier: Apache-2.0

// Package cli is kernelctl, the users' and administrators' view of the broker.
//
// Commands are a noun and a verb. Results go to stdout and everything else to stderr, so that output can be piped;
// --output json and yaml print the API's messages with its field names, for programs. The exit code distinguishes a
// refusal from a broker that cannot be reached or cannot do it now, for scripts and the SPANK plugin.
package cli

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/strictyaml"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/kernelbroker/kernelbroker/kernel-broker/api/client"
)

// addressVariable names the broker in the environment.
const addressVariable = "KERNEL_BROKER_ADDRESS"

// widthVariable is the terminal's width in the environment, as shells name it.
const widthVariable = "COLUMNS"

// callLimit is the time limit of one call.
const callLimit = 10 * time.Second

// Invocation is how the process was called.
type Invocation struct {
	Args    []string // without the program's name
	Getenv  func(string) string
	Stdout  io.Writer
	Stderr  io.Writer
	Version string
	// Terminal: stderr is a terminal, so progress may be drawn on it.
	Terminal bool
	// Confirm puts a question to somebody at a terminal; nil where there is none.
	Confirm func(ctx context.Context, question string) bool
	// Width of the terminal that stdout is, in columns; 0 if it is none.
	Width int
	// Munge authenticates the user over the network by a munged's socket.
	Munge func(socket string) client.Encoder

	try bootTest // in place of admission.Try
}

// app is one run of kernelctl.
type app struct {
	Invocation
	config, broker, output string
	cache, site            string
	started                bool
	said                   []string // messages so far
	conn                   *grpc.ClientConn
	address                string
}

// Run executes the invocation and returns the exit code.
func Run(ctx context.Context, i Invocation) int {
	a := &app{Invocation: i}
	if n, err := strconv.Atoi(i.Getenv(widthVariable)); err == nil && n > 0 {
		a.Width = n
	}
	printed := &counted{Writer: i.Stdout}
	a.Stdout = printed
	root := a.root()
	root.SetArgs(i.Args)
	c, err := root.ExecuteContextC(ctx)
	if a.conn != nil {
		_ = a.conn.Close() // nothing can be lost
	}
	if err == nil && a.started && !a.isTable() && printed.bytes == 0 {
		// What has no result has what was said.
		err = a.showValue(map[string][]string{"messages": append([]string{}, a.said...)}, nil)
	}
	if err == nil {
		return exitOK
	}
	if !a.started {
		// Cobra found this before any command ran.
		err = usageError{err}
	}
	return a.fail(c, err)
}

// counted is a writer that knows how much was written.
type counted struct {
	io.Writer
	bytes int
}

func (w *counted) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	w.bytes += n
	return n, err
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use: "kernelctl", Short: "Manage kernels, profiles, nodes and jobs of Kernel Broker",
		SilenceErrors: true, SilenceUsage: true, Version: a.Version,
	}
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	flags := root.PersistentFlags()
	flags.StringVar(&a.config, "config", client.DefaultPath, "settings `file`")
	flags.StringVar(&a.broker, "broker", "", "broker's `address`: unix:///path or host:port; several with commas")
	flags.StringVarP(&a.output, "output", "o", outputTable, "`format` of the result: table, wide (one line a row, all columns), json or yaml")
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(outputs, cobra.ShellCompDirectiveNoFileComp))
	root.AddCommand(a.profileCommand(), a.kernelCommand(), a.keyCommand(), a.artifactCommand(), a.nodeCommand(), a.hardwareCommand(), a.authorityCommand(), a.jobCommand(), a.eventsCommand(), a.runCommand(), a.policyCommand(), a.auditCommand(), a.configCommand(),
		a.doctorCommand(), a.setupCommand(), a.healthCommand(), a.supportCommand(), a.webCommand(), a.versionCommand(), a.manCommand(root))
	addTexts(root)
	a.addCompletions(root)
	return root
}

//go:embed commands.yaml
var commandTexts []byte

// addTexts gives each command its long text and its examples.
func addTexts(root *cobra.Command) {
	texts := map[string]struct {
		Long     string
		Examples []string
	}{}
	if err := strictyaml.Decode("commands.yaml", commandTexts, &texts); err != nil {
		panic(err) // the file is part of the program, and each test reads it
	}
	for path, text := range texts {
		c, _, err := root.Find(strings.Fields(path)[1:])
		if err != nil || c.CommandPath() != path {
			panic("commands.yaml: " + path + " is no command")
		}
		c.Long = strings.TrimSuffix(text.Long, "\n")
		if len(text.Examples) > 0 {
			c.Example = "  " + strings.Join(text.Examples, "\n  ")
		}
	}
}

// noun is a command that only holds verbs.
func noun(name, short string, verbs ...*cobra.Command) *cobra.Command {
	var names []string
	for _, verb := range verbs {
		names = append(names, verb.Name())
	}
	c := &cobra.Command{Use: name, Short: short, RunE: func(*cobra.Command, []string) error { return nil }}
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("%s has no command %q, it has %s", c.CommandPath(), args[0], strings.Join(names, ", "))
		}
		return fmt.Errorf("%s needs a command: %s", c.CommandPath(), strings.Join(names, ", "))
	}
	c.AddCommand(verbs...)
	return c
}

// command is a verb with its work.
func (a *app) command(use, short string, args cobra.PositionalArgs, work func(context.Context, []string) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: args, RunE: a.run(work)}
}

// run wraps a command's work: from here on errors are not about usage.
func (a *app) run(work func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		if err := checkOutput(a.output); err != nil {
			return err
		}
		a.started = true
		return work(c.Context(), args)
	}
}

// dial connects to the broker, once.
func (a *app) dial() (*grpc.ClientConn, error) {
	if a.conn != nil {
		return a.conn, nil
	}
	config, err := client.LoadConfig(a.config)
	if err != nil {
		return nil, err
	}
	return a.dialBy(config)
}

func (a *app) dialBy(config client.Config) (*grpc.ClientConn, error) {
	a.address = cmp.Or(a.broker, a.Getenv(addressVariable), config.Broker)
	conn, err := client.Dial(a.address, config.Trust, config.Proof(a.address, a.Munge)...)
	if err != nil {
		return nil, usageError{err}
	}
	a.conn = conn
	return conn, nil
}

// call makes one short call to the broker.
func call[C, Q, R any](ctx context.Context, a *app, service func(grpc.ClientConnInterface) C,
	method func(C, context.Context, Q, ...grpc.CallOption) (R, error), request Q) (R, error) {
	conn, err := a.dial()
	if err != nil {
		var none R
		return none, err
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	return method(service(conn), ctx, request)
}

// Command is kernelctl's command tree for documentation: it cannot run and has no broker.
func Command() *cobra.Command {
	return (&app{Invocation: Invocation{Getenv: func(string) string { return "" }, Stdout: io.Discard, Stderr: io.Discard, Version: "devel"}}).root()
}
