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
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/strictyaml"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/client"
)

// addressVariable names the broker in the environment.
const addressVariable = "KERNEL_BROKER_ADDRESS"

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
	conn                   *grpc.ClientConn
	address                string
}

// Run executes the invocation and returns the exit code.
func Run(ctx context.Context, i Invocation) int {
	a := &app{Invocation: i}
	root := a.root()
	root.SetArgs(i.Args)
	err := root.ExecuteContext(ctx)
	if a.conn != nil {
		_ = a.conn.Close() // nothing can be lost
	}
	if err == nil {
		return exitOK
	}
	if !a.started {
		// Cobra found this before any command ran.
		err = usageError{err}
	}
	code, text := a.explain(err)
	_, _ = fmt.Fprintln(i.Stderr, text)
	return code
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
	flags.StringVarP(&a.output, "output", "o", outputTable, "`format` of the result: table, json or yaml")
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(outputs, cobra.ShellCompDirectiveNoFileComp))
	root.AddCommand(a.profileCommand(), a.kernelCommand(), a.keyCommand(), a.artifactCommand(), a.nodeCommand(), a.hardwareCommand(), a.authorityCommand(), a.jobCommand(), a.runCommand(), a.policyCommand(), a.auditCommand(), a.configCommand(),
		a.doctorCommand(), a.healthCommand(), a.webCommand(), a.versionCommand(), a.manCommand(root))
	addTexts(root)
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

// Exit codes, as the help text has them.
const (
	exitOK = iota
	exitFailure
	exitUsage
	exitRefused
	exitUnavailable
)

// usageError is a mistake on the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// errUnhealthy ends a command that has printed everything already.
var errUnhealthy = errors.New("the broker is not healthy")

// explain returns the exit code and the message for the user.
func (a *app) explain(err error) (int, string) {
	var usage usageError
	if errors.As(err, &usage) {
		return exitUsage, fmt.Sprintf("%v\nSee kernelctl --help.", usage.error)
	}
	if errors.Is(err, context.Canceled) {
		return exitFailure, "interrupted"
	}
	made, isStatus := status.FromError(err)
	if !isStatus {
		for _, refusal := range []error{kb.ErrInvalid, kb.ErrNotFound, kb.ErrExists, kb.ErrFailedPrecondition, kb.ErrDenied} {
			if errors.Is(err, refusal) {
				return exitRefused, plain(err.Error())
			}
		}
		return exitFailure, plain(err.Error())
	}
	switch made.Code() {
	case codes.Unavailable:
		if answered(err) {
			return exitUnavailable, fmt.Sprintf("the broker at %s cannot do it now: %s", a.address, plain(made.Message()))
		}
		return exitUnavailable, fmt.Sprintf("broker at %s cannot be reached: %s", a.address, dialing(plain(made.Message())))
	case codes.DeadlineExceeded:
		return exitUnavailable, fmt.Sprintf("broker at %s did not answer in time", a.address)
	case codes.Canceled:
		return exitFailure, "interrupted"
	case codes.NotFound, codes.FailedPrecondition, codes.InvalidArgument, codes.AlreadyExists, codes.OutOfRange, codes.PermissionDenied:
		return exitRefused, plain(made.Message())
	}
	return exitFailure, plain(made.Message())
}

// disconnected begins the texts with which gRPC itself says that there is no connection, or no longer.
var disconnected = []string{"connection error", "last connection error", "error reading from server", "transport", "closing transport",
	"name resolver error", "the connection is draining", "the stream is rejected", "keepalive ping failed", "stream terminated"}

// answered reports whether a codes.Unavailable is the broker's answer. It may quote an error of a connection of its own.
func answered(err error) bool {
	var made interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &made) {
		return false
	}
	text := made.GRPCStatus().Message()
	return !slices.ContainsFunc(disconnected, func(begin string) bool { return strings.HasPrefix(text, begin) })
}

// dialing removes gRPC's prefix from the system's error.
func dialing(text string) string {
	if _, cause, ok := strings.Cut(text, "Error while dialing: "); ok {
		return strings.TrimSuffix(cause, `"`)
	}
	return text
}

// plain removes control characters: texts also come from nodes and users.
func plain(text string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' && c != '\n' && c != '\t' || c == 0x7f || c >= 0x80 && c < 0xa0 {
			return -1
		}
		return c
	}, text)
}
