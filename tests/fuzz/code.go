package fuzz

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// listed is what is taken of go list.
type listed struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Deps       []string
	Standard   bool
	Module     *struct {
		Path    string
		Version string
		Main    bool
	}
}

// Codes are digests of what each target runs: its own file, the sources of all
// packages of this module that its test program is made of without their tests,
// and the versions of the other modules and of Go. What is embedded is left out:
// of some of it a clone has nothing before it is built.
func Codes(ctx context.Context, root, goCommand string, targets []Target) (map[string]string, error) {
	codes := map[string]string{}
	var folders []string
	for _, t := range targets {
		if !t.inC() {
			folders = append(folders, "./"+t.Package)
			continue
		}
		var err error
		if codes[t.String()], err = codeC(root, t); err != nil {
			return nil, err
		}
	}
	if len(folders) == 0 {
		return codes, nil
	}
	slices.Sort(folders)
	packages, err := list(ctx, root, goCommand, slices.Compact(folders))
	if err != nil {
		return nil, err
	}
	version, err := run(ctx, root, goCommand, "env", "GOVERSION")
	if err != nil {
		return nil, err
	}
	byFolder, sums := map[string]listed{}, map[string]string{}
	for _, p := range packages {
		within, err := filepath.Rel(root, p.Dir)
		if err == nil && strings.HasSuffix(p.ImportPath, ".test") {
			byFolder[filepath.ToSlash(within)] = p
		}
	}
	for _, t := range targets {
		if t.inC() {
			continue
		}
		program, ok := byFolder[t.Package]
		if !ok {
			return nil, fmt.Errorf("go list knows no test program of %s", t.Package)
		}
		parts := []string{string(version)}
		for _, name := range program.Deps {
			part, err := sum(packages[name], sums)
			if err != nil {
				return nil, err
			}
			parts = append(parts, part)
		}
		slices.Sort(parts)
		own, err := os.ReadFile(filepath.Join(root, t.file))
		if err != nil {
			return nil, err
		}
		digest := sha256.New()
		_, _ = fmt.Fprintf(digest, "%q\n", slices.Compact(parts))
		_, _ = digest.Write(own)
		codes[t.String()] = hex.EncodeToString(digest.Sum(nil)[:8])
	}
	return codes, nil
}

func run(ctx context.Context, root, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = root
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil, fmt.Errorf("%s %s: %w\n%s", program, args[0], err, exit.Stderr)
	}
	return out, err
}

func list(ctx context.Context, root, goCommand string, folders []string) (map[string]listed, error) {
	out, err := run(ctx, root, goCommand, append([]string{"list", "-deps", "-test", "-json=ImportPath,Dir,GoFiles,Deps,Standard,Module"}, folders...)...)
	if err != nil {
		return nil, err
	}
	packages := map[string]listed{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		packages[p.ImportPath] = p
	}
}

// sum is of one package, without its tests; sums has those that are known. Go
// builds a package anew where a test is part of it: "path [path.test]".
func sum(p listed, sums map[string]string) (string, error) {
	path, _, _ := strings.Cut(p.ImportPath, " ")
	switch {
	case p.Standard:
		return "", nil // Go's version stands for it
	case p.Module == nil || !p.Module.Main:
		if p.Module != nil {
			return p.Module.Path + "@" + p.Module.Version, nil
		}
		return "", nil
	case sums[path] != "":
		return sums[path], nil
	}
	digest := sha256.New()
	for _, file := range p.GoFiles {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		if err := addFile(digest, filepath.Join(p.Dir, file)); err != nil {
			return "", err
		}
	}
	sums[path] = path + " " + hex.EncodeToString(digest.Sum(nil))
	return sums[path], nil
}

// addFile adds a file to a digest, by its name and what is in it.
func addFile(digest io.Writer, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(digest, "%s %d\n", filepath.Base(path), len(text))
	_, _ = digest.Write(text)
	return nil
}
