// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"crypto"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/signing"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/signing/keys"
)

func (a *app) keyCommand() *cobra.Command {
	var passphrase string
	generate := a.command("generate FILE", "Make a key to sign kernels with", cobra.ExactArgs(1),
		func(_ context.Context, args []string) error { return a.keyGenerate(args[0], passphrase) })
	generate.Flags().StringVar(&passphrase, "passphrase-file", "", "`file` with the passphrase; - for none")
	show := a.command("show KEY", "Print the public half of a key as an entry for trust lists", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		by, err := keys.Open(ctx, args[0], a.ask(passphrase))
		if err != nil {
			return err
		}
		text, err := signing.FormatPublicKey(by.Public())
		if err != nil {
			return err
		}
		return a.showKey(args[0], text)
	})
	show.Flags().StringVar(&passphrase, "passphrase-file", "", "`file` with the passphrase or PIN")
	check := &cobra.Command{Use: "check-trust FILE", Short: "Validate a trust list", Args: cobra.ExactArgs(1), RunE: a.run(a.keyCheckTrust)}
	return noun("key", "Keys that kernels are signed with", generate, show, check)
}

func (a *app) keyCheckTrust(_ context.Context, args []string) error {
	if _, err := signing.ReadTrust(args[0], nil); err != nil {
		return err
	}
	a.say("%s is a trust list", args[0])
	return nil
}

func (a *app) keyGenerate(path, passphraseFile string) error {
	var secret []byte
	var err error
	if passphraseFile != "-" {
		if secret, err = a.ask(passphraseFile)("New passphrase of " + path); err != nil {
			return err
		}
		if len(secret) == 0 {
			return usageError{fmt.Errorf("the passphrase is empty; --passphrase-file - makes a key without one")}
		}
	}
	private, public, err := keys.Generate(secret)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(private)
	if closing := file.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return fmt.Errorf("key %q: %w", path, err)
	}
	return a.showKey(path, public)
}

// showKey prints an entry for the keys of a trust list.
func (a *app) showKey(name string, public []byte) error {
	parsed, err := signing.ParsePublicKey(public)
	if err != nil {
		return err
	}
	entry, _, err := trustEntry(filepath.Base(name), parsed)
	if err != nil {
		return err
	}
	return a.page(func(p *page) { p.line("%s", strings.TrimSuffix(entry, "\n")) })
}

// trustEntry is a key as one of the keys of a trust list, and its id.
func trustEntry(name string, public crypto.PublicKey) (entry, id string, err error) {
	if id, err = signing.KeyID(public); err != nil {
		return "", "", err
	}
	text, err := signing.FormatPublicKey(public)
	if err != nil {
		return "", "", err
	}
	var e strings.Builder
	fmt.Fprintf(&e, "  - name: %q\n    id: %s\n    public: |\n", name, id)
	for line := range strings.Lines(string(text)) {
		fmt.Fprintf(&e, "      %s\n", strings.TrimSpace(line))
	}
	return e.String(), id, nil
}

// maxSecret is far above the length of a passphrase.
const maxSecret = 64 << 10

// readSecret reads a passphrase. Its file may be a pipe: shells pass secrets that way.
func readSecret(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // only read from
	text, err := io.ReadAll(io.LimitReader(file, maxSecret+1))
	if err == nil && len(text) > maxSecret {
		err = fmt.Errorf("%s has more than %d bytes: %w", path, maxSecret, kb.ErrInvalid)
	}
	return bytes.TrimRight(text, "\r\n"), err
}

// ask gets a secret from a file or from the terminal.
func (*app) ask(file string) keys.Ask {
	return func(what string) ([]byte, error) {
		if file != "" {
			return readSecret(file)
		}
		terminal, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
		if err != nil {
			return nil, fmt.Errorf("%s: no terminal to prompt for the passphrase; use --passphrase-file: %w", what, kb.ErrFailedPrecondition)
		}
		defer func() { _ = terminal.Close() }() // only read from
		if _, err := fmt.Fprintf(terminal, "%s: ", what); err != nil {
			return nil, err
		}
		secret, err := term.ReadPassword(int(terminal.Fd()))
		_, _ = fmt.Fprintln(terminal) // the line that was not shown
		return secret, err
	}
}
