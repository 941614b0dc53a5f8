// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/safeopen"
)

// supportCommands are asked for a bundle, each into a file.
var supportCommands = [][]string{
	{"version"}, {"health"}, {"doctor", "--all"}, {"node", "list"}, {"job", "list", "--limit", "50"}, {"run", "list", "--limit", "50"},
	{"profile", "list"}, {"hardware", "list"}, {"artifact", "list"},
}

// supportFiles are read where the caller may, without their secrets.
var supportFiles = []string{
	"/etc/kernel-broker/client.yaml", "/etc/kernel-broker/broker.yaml", "/etc/kernel-broker/agent.yaml", "/etc/kernel-broker/factory.yaml",
	"/etc/slurm/slurm.conf", "/etc/slurm/plugstack.conf", "/etc/os-release", "/proc/version",
}

// mostOfFile is how much of a configuration file is taken.
const mostOfFile = 1 << 20

func (a *app) supportCommand() *cobra.Command {
	var path string
	c := a.command("support", "Write what a report of a fault needs into one file, without secrets", cobra.NoArgs,
		func(ctx context.Context, _ []string) error { return a.support(ctx, path, supportFiles) })
	c.Flags().StringVar(&path, "output-file", "", "`file` to write (default kernel-broker-support-TIME.tar.gz)")
	return c
}

// bundleEntry is one file of a bundle.
type bundleEntry struct {
	name string
	text []byte
}

func (a *app) support(ctx context.Context, path string, files []string) error {
	now := time.Now()
	if path == "" {
		path = "kernel-broker-support-" + now.Format("20060102-150405") + ".tar.gz"
	}
	var entries []bundleEntry
	for _, words := range supportCommands {
		entries = append(entries, a.answerOf(ctx, words))
	}
	for _, file := range files {
		text, err := safeopen.Read(file, mostOfFile, nil)
		if err != nil {
			text = []byte(err.Error() + "\n")
		}
		entries = append(entries, bundleEntry{"files" + file, withoutSecrets(text)})
	}
	bundle, err := packed(entries, now)
	if err != nil {
		return fmt.Errorf("support: %w", err)
	}
	if err := atomicfile.Write(path, bundle, 0o600); err != nil {
		return err
	}
	a.say("%s: %s, of which only you can read anything; look at it before you send it", path, count(len(entries), "file"))
	return nil
}

// answerOf runs one of this program's commands; what fails is an answer, too.
func (a *app) answerOf(ctx context.Context, words []string) bundleEntry {
	var out bytes.Buffer
	i := a.Invocation
	i.Args = append([]string{"--config", a.config, "--output", outputJSON}, words...)
	if a.broker != "" {
		i.Args = append(i.Args, "--broker", a.broker)
	}
	i.Stdout, i.Stderr, i.Terminal, i.Confirm = &out, &out, false, nil
	code := Run(ctx, i)
	name := strings.ReplaceAll(strings.Join(words, "-"), "--", "")
	return bundleEntry{"kernelctl/" + name + ".txt", fmt.Appendf(withoutSecrets(out.Bytes()), "exit code %d\n", code)}
}

// secretLine is a line of a configuration that may hold a secret: by its key, or by what it contains.
var secretLine = regexp.MustCompile(`(?i)^(\s*"?(?:[\w.-]*(?:password|passwd|passphrase|secret|token|credential|private_?key|authinfo|reset_command)[\w.-]*|[\w.-]*pass|pin)"?\s*[:=]\s*).*`)

// secretWord is a secret within a line: a password in a URL, a one-time token of a kernel's command line, a node's token.
var secretWord = regexp.MustCompile(`(?i)(://[^/\s:@]*:)[^@\s/]+(@)|(kernelbroker\.token=)\S+()|(pass(?:word|wd)?=|pin-value=|secret=|token=)[^\s,;&"]+()`)

const hidden = "[left out]"

// withoutSecrets replaces what may be one, with all that belongs to its key. Names of files that hold secrets are left out,
// too.
func withoutSecrets(text []byte) []byte {
	var out bytes.Buffer
	private, inside := false, -1 // inside is the indentation of a key whose value is on the lines below it
	for line := range strings.Lines(string(text)) {
		end := line[len(strings.TrimRight(line, "\r\n")):]
		line = strings.TrimRight(line, "\r\n")
		words := strings.TrimLeft(line, " \t")
		indent := len(line) - len(words)
		private = private || strings.Contains(line, "-----BEGIN") && strings.Contains(line, "PRIVATE KEY")
		inside = either(inside >= 0 && words != "" && (indent < inside || indent == inside && !strings.HasPrefix(words, "-")), -1, inside)
		found := secretLine.FindStringSubmatch(line)
		switch {
		case private, inside >= 0 && words != "":
			line = hidden
		case found != nil:
			line = found[1] + hidden
			inside = indent
		default:
			line = secretWord.ReplaceAllString(line, "${1}${3}${5}"+hidden+"${2}")
		}
		private = private && !strings.Contains(words, "-----END")
		out.WriteString(line + end)
	}
	return out.Bytes()
}

// packed is a tar file in one folder, compressed.
func packed(entries []bundleEntry, now time.Time) ([]byte, error) {
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	archive := tar.NewWriter(zipped)
	for _, e := range entries {
		header := &tar.Header{Name: filepath.Join("kernel-broker-support", e.name), Mode: int64(os.FileMode(0o600)), Size: int64(len(e.text)), ModTime: now, Typeflag: tar.TypeReg}
		if err := archive.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := archive.Write(e.text); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	if err := zipped.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
