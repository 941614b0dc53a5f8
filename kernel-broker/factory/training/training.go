// SPDX-License-Identifier: Apache-2.0

// Package training keeps in one file what runs of an application said of its
// kernel: which options it does without, the profile, and the report. A kernel is
// built from it without a run.
package training

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/tarlimit"
)

// Folders of an archive: what slimming decided, the profile, and the report of
// the kernel that was made of both.
const (
	Slimming = "slimming"
	Profile  = "profile"
	Report   = "report"
)

const (
	format    = 1
	factsFile = "training.json"
)

// What an archive may unpack to: a kernel has some thousand counted files of a few
// kilobytes.
const (
	mostBytes   = 1 << 30
	mostEntries = 1 << 14
)

// Facts say what the data are of.
type Facts struct {
	Format int    `json:"format"`
	Kernel string `json:"kernel"`
	// Source and Compiler are all that is said of them: package and version,
	// command, version and linker.
	Source   string `json:"source"`
	Compiler string `json:"compiler"`
	// Probes say that the profile is of probes, and not of lines.
	Probes bool `json:"probes,omitempty"`
	// Workload with the seed and size of its training data, or the runs.
	Workload string `json:"workload"`
	// BuildID and Image of the kernel that the report is about.
	BuildID string `json:"build_id"`
	Image   string `json:"image"`
}

// Errors of data that a kernel cannot be built from.
var (
	// ErrOther is data of another source package or compiler.
	ErrOther = errors.New("training data are of another kernel")
	// ErrOtherProfile is a profile that another compiler wrote, or of lines where the
	// recipe wants probes. What slimming found holds for any.
	ErrOtherProfile = fmt.Errorf("%w: its profile does not fit", ErrOther)
	// ErrDamaged is a file with another content than the recipe says.
	ErrDamaged = errors.New("training data are damaged or of another recipe")
)

// File of a kernel's data in a catalog.
func File(catalog, kernel string) string {
	return filepath.Join(catalog, "training", kernel+".tar.zst")
}

// Same reports whether data are of exactly this source and compiler: then the
// kernel is the one that was measured. With another version of the same package
// and compiler the profile serves function by function, and the compiler says
// which it does not fit.
func (f Facts) Same(source, compiler string, probes bool) (bool, error) {
	for _, part := range []struct {
		what, has, wants string
		err              error
	}{{"source", f.Source, source, ErrOther}, {"compiler", f.Compiler, compiler, ErrOtherProfile}} {
		if first(part.has) != first(part.wants) {
			return false, fmt.Errorf("%s %q, and the kernel is built with %q: %w", part.what, part.has, part.wants, part.err)
		}
	}
	if f.Probes != probes {
		return false, fmt.Errorf("probes: %t, and the recipe says %t: %w", f.Probes, probes, ErrOtherProfile)
	}
	return f.Source == source && f.Compiler == compiler, nil
}

func first(text string) string {
	return strings.TrimRight(strings.SplitN(text, " ", 2)[0], ";")
}

// Pack writes folders into an archive, by the names that they have in it, and
// returns its digest. The same content gives the same bytes.
func Pack(file string, facts Facts, folders map[string]string) (string, error) {
	facts.Format = format
	said, err := json.MarshalIndent(facts, "", "  ")
	if err != nil {
		return "", fmt.Errorf("training data: %w", err)
	}
	var packed bytes.Buffer
	// One encoder at a time: several cut the input by chance.
	compressor, err := zstd.NewWriter(&packed, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return "", fmt.Errorf("training data: %w", err)
	}
	archive := tar.NewWriter(compressor)
	err = tarlimit.Add(archive, factsFile, append(said, '\n'))
	for _, name := range []string{Slimming, Profile, Report} {
		if from := folders[name]; from != "" && err == nil {
			err = addFolder(archive, name, from)
		}
	}
	if err = errors.Join(err, archive.Close(), compressor.Close()); err != nil {
		return "", fmt.Errorf("training data: %w", err)
	}
	return digest.Of(packed.Bytes()), atomicfile.Write(file, packed.Bytes(), 0o644)
}

func addFolder(archive *tar.Writer, name, from string) error {
	var files []string
	err := filepath.WalkDir(from, func(p string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			files = append(files, p)
		}
		return err
	})
	if err != nil {
		return err
	}
	slices.SortFunc(files, cmp.Compare[string])
	for _, file := range files {
		inside, err := filepath.Rel(from, file)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := tarlimit.Add(archive, path.Join(name, filepath.ToSlash(inside)), content); err != nil {
			return err
		}
	}
	return nil
}

// Unpack checks an archive against the digest of its recipe, and unpacks it into
// an empty folder.
func Unpack(ctx context.Context, file, wanted, kernel, dir string) (Facts, error) {
	fail := func(err error) (Facts, error) { return Facts{}, fmt.Errorf("training data %s: %w", file, err) }
	packed, err := os.ReadFile(file)
	if err != nil {
		return fail(err)
	}
	if is := digest.Of(packed); is != wanted {
		return fail(fmt.Errorf("the digest is %s, the recipe's key training says %s: %w", is, wanted, ErrDamaged))
	}
	plain, err := zstd.NewReader(bytes.NewReader(packed), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(mostBytes))
	if err != nil {
		return fail(err)
	}
	defer plain.Close()
	budget := tarlimit.Budget{Bytes: mostBytes, Entries: mostEntries}
	err = budget.Each(plain, func(header *tar.Header, entry io.Reader) error {
		return errors.Join(ctx.Err(), unpackOne(header, entry, dir))
	})
	if err != nil {
		return fail(err)
	}
	facts, err := ReadFacts(dir)
	if err == nil && facts.Kernel != kernel {
		err = fmt.Errorf("of kernel %q: %w", facts.Kernel, ErrOther)
	}
	if err != nil {
		return fail(err)
	}
	return facts, nil
}

func unpackOne(header *tar.Header, from io.Reader, dir string) error {
	name := header.Name
	top, _, inside := strings.Cut(name, "/")
	belongs := name == factsFile || inside && slices.Contains([]string{Slimming, Profile, Report}, top)
	if header.Typeflag != tar.TypeReg || !belongs || !filepath.IsLocal(name) || path.Clean(name) != name {
		return fmt.Errorf("%q does not belong in training data", name)
	}
	return tarlimit.WriteFile(filepath.Join(dir, name), from) //nolint:gosec // G305: the name is local and clean
}

// ReadFacts of an unpacked archive.
func ReadFacts(dir string) (Facts, error) {
	text, err := os.ReadFile(filepath.Join(dir, factsFile))
	if err != nil {
		return Facts{}, err
	}
	var facts Facts
	if err := json.Unmarshal(text, &facts); err != nil {
		return Facts{}, fmt.Errorf("%s: %w", factsFile, err)
	}
	if facts.Format != format {
		return Facts{}, fmt.Errorf("%s: format %d, only %d is known", factsFile, facts.Format, format)
	}
	return facts, nil
}
