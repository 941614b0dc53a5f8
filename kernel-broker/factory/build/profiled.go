// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/autofdo"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pgo"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/diskfull"
)

// Use is how a profile was used: what a manifest says of it.
type Use struct {
	Digest string `json:"digest"`
	// Objects with a profile, and those that were compiled in this build since
	// their profile was not the one of the build before. The latter depends on
	// what was built before, and is not in the manifest.
	Objects int `json:"objects"`
	// Functions with samples, where the profile is of sampled branches.
	Functions int `json:"functions,omitempty"`
	Compiled  int `json:"-"`
	// Complaints about all objects, compiled now or before.
	Complaints pgo.Complaints `json:"complaints"`
	// Excluded objects are compiled without a profile.
	Excluded []Exclusion `json:"excluded,omitempty"`
}

// maxExclusions that a build adds by itself. More than these are no odd files
// but a profile that is wrong.
const maxExclusions = 5

// complaintsFile keeps, beside an object folder, what was said of its objects.
func complaintsFile(obj string) string { return obj + ".complaints.json" }

// saidFile has the words of a build that were not looked through yet.
func saidFile(obj string) string { return obj + ".said" }

// profiledBuild is a build with a profile in an object folder that was used
// with another one before.
type profiledBuild struct {
	builder  *Builder
	source   Source
	at       site
	watch    Watch
	excluded []Exclusion
}

// run swaps the profile and compiles. An object that does not compile with its
// profile is compiled without it, and the build goes on.
func (p *profiledBuild) run(ctx context.Context, profile string) (*Use, error) {
	p.excluded = append(p.excluded, p.at.plan.Recipe.Exclude...)
	added := 0
	for {
		use, err := p.once(ctx, profile)
		var failed *failedObjects
		if err == nil || !errors.As(err, &failed) || ctx.Err() != nil {
			return use, err
		}
		if added += len(failed.exclusions); added > maxExclusions {
			return nil, fmt.Errorf("%d objects do not compile with their profile, at most %d may: %w", added, maxExclusions, err)
		}
		for _, exclusion := range failed.exclusions {
			p.builder.Progress.Say("without a profile: %s: %s", exclusion.Object, exclusion.Reason)
		}
		p.excluded = append(p.excluded, failed.exclusions...)
	}
}

// failedObjects are those with a profile that did not compile.
type failedObjects struct {
	exclusions []Exclusion
	err        error
}

func (f *failedObjects) Error() string { return f.err.Error() }
func (f *failedObjects) Unwrap() error { return f.err }

func (p *profiledBuild) once(ctx context.Context, profile string) (*Use, error) {
	folder := profileFolder(p.at.obj)
	wanted, err := p.wanted(profile)
	if err != nil {
		return nil, err
	}
	changed, err := pgo.Swap(wanted, folder, func(object string) error {
		return removeIfThere(filepath.Join(p.at.obj, object+".o"))
	})
	if err != nil {
		return nil, err
	}
	if p.watch.Log != nil {
		_, _ = fmt.Fprintf(p.watch.Log, "profile: %d objects have another one than before\n", len(changed)) // the log keeps its error
	}
	said, failed := p.compile(ctx)
	complaints, compiled, err := p.complaints()
	if err != nil || failed != nil {
		return nil, errors.Join(p.blame(said, failed), err)
	}
	digest, err := pgo.FolderDigest(folder)
	if err != nil {
		return nil, err
	}
	linked, err := p.at.linked(ctx)
	if err != nil {
		return nil, err
	}
	return &Use{Digest: digest, Objects: len(wanted), Compiled: compiled, Complaints: complaints.Of(linked), Excluded: p.excluded}, nil
}

// linked are the objects of the kernel. The object folder has those of others, too,
// which were compiled in it before.
func (s site) linked(ctx context.Context) (map[string]bool, error) {
	members, err := Output(ctx, s.obj, "ar", "t", "vmlinux.a")
	if err != nil {
		return nil, err
	}
	objects := map[string]bool{}
	for object := range strings.FieldsSeq(members) {
		objects[object] = true
	}
	return objects, nil
}

// compile keeps what make says in a file, line by line: a build that is killed
// leaves objects, and what was said of them must not be lost.
func (p *profiledBuild) compile(ctx context.Context) (said string, failed error) {
	if _, _, err := p.complaints(); err != nil {
		return "", err
	}
	file, err := os.Create(saidFile(p.at.obj))
	if err != nil {
		return "", fmt.Errorf("build log: %w", err)
	}
	watch := p.watch
	watch.Log = file
	if p.watch.Log != nil {
		watch.Log = io.MultiWriter(file, p.watch.Log)
	}
	failed = p.builder.compile(ctx, p.source, p.at, watch)
	text, err := os.ReadFile(file.Name())
	return string(text), errors.Join(failed, err, file.Close())
}

// wanted is the profile without what is excluded.
func (p *profiledBuild) wanted(profile string) (map[string][]byte, error) {
	files, err := pgo.ReadFolder(profile)
	if err != nil {
		return nil, err
	}
	for _, exclusion := range p.excluded {
		object := strings.TrimSuffix(exclusion.Object, ".o")
		if _, has := files[object]; !has {
			return nil, fmt.Errorf("object %q is excluded from the profile, which does not have it", exclusion.Object)
		}
		delete(files, object)
	}
	return files, nil
}

// complaints brings the list beside the object folder up to date with what was
// said in the last build, if that was not done yet.
func (p *profiledBuild) complaints() (pgo.Complaints, int, error) {
	path, said := complaintsFile(p.at.obj), saidFile(p.at.obj)
	fail := func(err error) (pgo.Complaints, int, error) {
		return pgo.Complaints{}, 0, fmt.Errorf("complaints of %q: %w", p.at.obj, err)
	}
	var all pgo.Complaints
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fail(err)
	}
	log, err := os.ReadFile(said)
	if errors.Is(err, os.ErrNotExist) {
		return all, 0, nil
	}
	if err != nil {
		return fail(err)
	}
	fresh, compiled, err := pgo.ReadLog(bytes.NewReader(log))
	if err != nil {
		return fail(err)
	}
	all = all.Again(fresh, compiled)
	if err := atomicfile.WriteJSON(path, all, 0o644); err != nil {
		return fail(err)
	}
	if err := os.Remove(said); err != nil {
		return fail(err)
	}
	return all, len(compiled), nil
}

var (
	failedLine = regexp.MustCompile(`(?m)^make\[\d+\]: \*\*\* \[(?:\S+:\d+: )?(\S+)\.o\] Error `)
	errorLine  = regexp.MustCompile(`(?m)^\S+?:\d+:(?:\d+:)? (?:fatal |internal compiler )?[eE]rror: (.*)$`)
)

// blame turns a failed build into the objects that are to blame, if all of
// them have a profile.
func (p *profiledBuild) blame(said string, failed error) error {
	var build *BuildError
	if !errors.As(failed, &build) || diskfull.Is(failed) {
		return failed
	}
	reason := "does not compile with its profile"
	if found := errorLine.FindStringSubmatch(said); found != nil {
		reason += ": " + found[1]
	}
	blamed := &failedObjects{err: failed}
	for _, found := range failedLine.FindAllStringSubmatch(said, -1) {
		if !exists(filepath.Join(profileFolder(p.at.obj), pgo.Mangled(found[1]))) {
			return failed
		}
		blamed.exclusions = append(blamed.exclusions, Exclusion{Object: found[1] + ".o", Reason: reason})
	}
	if len(blamed.exclusions) == 0 {
		return failed
	}
	return blamed
}

// takeSamples puts a sample profile where the compiler finds it, in the form that it reads fast. The profile's digest is in
// its name, and the name among the compiler's flags: kbuild compiles each object again when it is another.
func (s *site) takeSamples(ctx context.Context, profile string) (*Use, error) {
	sum, err := autofdo.FolderDigest(profile)
	if err != nil {
		return nil, err
	}
	from := filepath.Join(profile, autofdo.ProfileFile)
	functions, err := autofdo.Functions(from)
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	folder := profileFolder(s.obj)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	s.samples, s.sampled = from, filepath.Join(folder, strings.TrimPrefix(sum, "sha256:")[:16]+".prof")
	tools := autofdo.Tools{Compiler: s.plan.Compiler.Name}
	if err := tools.Binary(ctx, from, s.sampled); err != nil {
		return nil, err
	}
	return &Use{Digest: sum, Functions: functions}, nil
}

// flags are the compiler's besides kbuild's.
func (s site) flags() ([]string, error) {
	flags, err := s.plan.flags(s.variant, s.obj)
	if s.plan.lines() {
		flags = append(flags, s.plan.sampling().MarkFlags()...)
	}
	if s.sampled != "" {
		flags = append(flags, s.plan.sampling().UseFlags(s.sampled)...)
	}
	return flags, err
}

// linkedBefore has the linker take from a folder what it compiled for the same input. With a profile it would find nothing there: the profile is a
// part of each object's key.
func (s site) linkedBefore() []string {
	if s.variant != Plain || !s.plan.Merged.Asks(thinLTO) {
		return nil
	}
	return []string{"--thinlto-cache-dir=" + s.obj + ".thinlto", "--thinlto-cache-policy=cache_size_bytes=2g"}
}

// linkerFlags go with the linker's name: kbuild has no variable for them. Without LTO nothing is compiled at the link.
func (s site) linkerFlags() []string {
	if s.sampled == "" || !s.plan.Merged.Asks(thinLTO) {
		return nil
	}
	return s.plan.sampling().LinkFlags(s.sampled)
}
