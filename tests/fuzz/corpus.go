package fuzz

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/kernelbroker/kernelbroker/kernel-broker/replace"
)

// How much of a corpus is kept: so many inputs, so many bytes of all of them.
const (
	mostInputs = 256
	mostBytes  = 128 << 10
)

// input is a file as Go's fuzzing writes it, with a digest for a name.
type input struct {
	name string
	text []byte
}

var inputName = regexp.MustCompile(`^[0-9a-f]{8,64}$`)

// choose returns what is kept: the smallest.
func choose(all []input) []input {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b input) int {
		return cmp.Or(cmp.Compare(len(a.text), len(b.text)), cmp.Compare(a.name, b.name))
	})
	kept, size := 0, 0
	for _, i := range all {
		if size += len(i.text); kept == mostInputs || size > mostBytes {
			break
		}
		kept++
	}
	all = all[:kept]
	slices.SortFunc(all, func(a, b input) int { return cmp.Compare(a.name, b.name) })
	return all
}

// pack makes an archive that is the same for the same inputs.
func pack(inputs []input) ([]byte, error) {
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	archive := tar.NewWriter(zipped)
	for _, i := range inputs {
		if err := archive.WriteHeader(&tar.Header{Name: i.name, Mode: 0o644, Size: int64(len(i.text)), Format: tar.FormatUSTAR}); err != nil {
			return nil, err
		}
		if _, err := archive.Write(i.text); err != nil {
			return nil, err
		}
	}
	err := errors.Join(archive.Close(), zipped.Close())
	return out.Bytes(), err
}

// unpack reads an archive, as far as it could be one of ours.
func unpack(text []byte) ([]input, error) {
	zipped, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	var inputs []input
	for archive := tar.NewReader(io.LimitReader(zipped, 4*mostBytes+mostInputs*2048)); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return inputs, nil
		}
		if err != nil {
			return nil, err
		}
		if !inputName.MatchString(header.Name) {
			return nil, fmt.Errorf("%q is no name of an input", header.Name)
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			return nil, err
		}
		inputs = append(inputs, input{header.Name, data})
	}
}

// restore puts a target's corpus where the engine looks for it.
func restore(archive, folder string) error {
	text, err := os.ReadFile(archive)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	inputs, err := unpack(text)
	if err != nil {
		return fmt.Errorf("corpus %s: %w", archive, err)
	}
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return err
	}
	for _, i := range inputs {
		if err := os.WriteFile(filepath.Join(folder, i.name), i.text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// keep makes the archive of what the engine has in its folder and of what is in
// the archive already, which another run may have put there. It returns how many
// inputs it has.
func keep(folder, archive string) (kept int, err error) {
	if err := restore(archive, folder); err != nil {
		return 0, err
	}
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	var all []input
	for _, e := range entries {
		if !inputName.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			return 0, err
		}
		all = append(all, input{e.Name(), text})
	}
	if all = choose(all); len(all) == 0 {
		return 0, nil
	}
	text, err := pack(all)
	if err != nil {
		return 0, err
	}
	if err := os.MkdirAll(filepath.Dir(archive), 0o755); err != nil {
		return 0, err
	}
	return len(all), replace.File(archive, text, 0o644)
}
