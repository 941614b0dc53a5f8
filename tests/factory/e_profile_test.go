// SPDX-License-Identifier: Apache-2.0

//go:build lab

package factory

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pgo"
)

// optimiser compiles the kernel of a place with profiles that no run gave: what
// a pipeline never asks for. Objects are those of the place.
type optimiser struct {
	place
	builder *build.Builder
	plan    build.Plan
	config  string
}

func (p place) optimiser(made kernel) optimiser {
	p.t.Helper()
	o := optimiser{place: p, config: filepath.Join(made.step("optimised-config").Dir, build.ConfigFile)}
	o.builder = &build.Builder{Catalog: catalog, Cache: build.Cache{Dir: p.dir}, Jobs: 2, FindSource: build.FindSource}
	var err error
	if o.plan, err = o.builder.Plan(p.t.Context(), "tiny"); err != nil {
		p.t.Fatal(err)
	}
	return o
}

// compile returns the folder of the kernel and what make said.
func (o optimiser) compile(t *testing.T, profile map[string][]byte) (dir, said string, err error) {
	t.Helper()
	dir = t.TempDir()
	files := filepath.Join(dir, "profile")
	if err := os.Mkdir(files, 0o755); err != nil {
		t.Fatal(err)
	}
	for object, data := range profile {
		if err := os.WriteFile(filepath.Join(files, pgo.Mangled(object)), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	input := build.CompileInput{Variant: build.Optimised, Config: o.config, Profile: files}
	_, err = o.builder.Compile(t.Context(), o.plan, input, build.Watch{Log: &log}, dir)
	return dir, log.String(), err
}

// inPlace is the profile that the objects of the place were compiled with last.
func (o optimiser) inPlace(t *testing.T) map[string][]byte {
	t.Helper()
	folders, err := filepath.Glob(filepath.Join(o.dir, "compiled", "*-pgo", "*.profile"))
	if err != nil || len(folders) != 1 {
		t.Fatalf("folders with a profile: %v %v", folders, err)
	}
	return folder(t, folders[0])
}

func folder(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files, err := pgo.ReadFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// compiled are the objects with a profile that went through the compiler.
func compiled(t *testing.T, said string, profile map[string][]byte) []string {
	t.Helper()
	_, all, err := pgo.ReadLog(strings.NewReader(said))
	if err != nil {
		t.Fatal(err)
	}
	var mine []string
	for _, object := range all {
		if name := strings.TrimSuffix(object, ".o"); profile[name] != nil {
			mine = append(mine, name)
		}
	}
	slices.Sort(mine)
	return mine
}

func TestProfiles(t *testing.T) {
	p, made := whole(t)
	o := p.optimiser(made)
	profile := folder(t, filepath.Join(made.step("profile").Dir, "profile"))

	t.Run("a profile is swapped", func(t *testing.T) {
		other := maps.Clone(profile)
		swapped := more(t, other, 3)
		want := pgo.Changed(o.inPlace(t), other)
		_, said, err := o.compile(t, other)
		if err != nil {
			t.Fatal(err)
		}
		if got := compiled(t, said, profile); !slices.Equal(got, want) || len(want) < len(swapped) {
			t.Errorf("compiled %v, the counters of %v changed", got, want)
		}
		dir, said, err := o.compile(t, profile)
		if err != nil {
			t.Fatal(err)
		}
		if got := compiled(t, said, profile); !slices.Equal(got, swapped) {
			t.Errorf("on the way back it compiled %v, the counters of %v changed", got, swapped)
		}
		if !bytes.Equal(read(t, filepath.Join(dir, build.ImageFile)), read(t, filepath.Join(made.Kernel, build.ImageFile))) {
			t.Error("with the first profile it is another kernel than before")
		}
		t.Logf("%d of %d objects were compiled again", len(swapped), len(profile))
	})

	// GCC tells a static function by the name of its file: training data travel to
	// caches in other folders, and give the same kernel there.
	t.Run("in another cache", func(t *testing.T) {
		there := o
		there.place = anew(t, "another-cache")
		there.builder = &build.Builder{Catalog: catalog, Cache: build.Cache{Dir: there.dir}, Jobs: 2, FindSource: build.FindSource}
		dir, _, err := there.compile(t, profile)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(read(t, filepath.Join(dir, build.ImageFile)), read(t, filepath.Join(made.Kernel, build.ImageFile))) {
			t.Error("it is another kernel than in the first cache")
		}
	})

	// In another kernel the functions are others: the largest objects get each
	// other's counters.
	t.Run("a profile of another kernel", func(t *testing.T) {
		other := maps.Clone(profile)
		names := bySize(profile)
		for i, name := range names[:4] {
			other[name] = profile[names[(i+1)%4]]
		}
		_, _, err := o.compile(t, other)
		if !errors.Is(err, pgo.ErrUnfit) || !strings.Contains(err.Error(), "functions do not match their profile, at most 60 may (") {
			t.Errorf("error is %v", err)
		}
		t.Log(err)
	})
}

// bySize are the objects of which anything ran, the one with the largest
// counters' file first.
func bySize(profile map[string][]byte) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(profile)) {
		if file, err := pgo.Parse(profile[name]); err == nil && file.Ran() {
			names = append(names, name)
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return len(profile[b]) - len(profile[a]) })
	return names
}

// more makes some objects run more often, and names them.
func more(t *testing.T, profile map[string][]byte, number int) []string {
	t.Helper()
	names := bySize(profile)
	names = names[len(names)-number:] // the small ones are quick to compile
	largest := int64(0)
	for _, data := range profile {
		file, err := pgo.Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		largest = max(largest, file.Max())
	}
	for _, name := range names {
		file, err := pgo.Parse(profile[name])
		if err != nil {
			t.Fatal(err)
		}
		for _, function := range file.Functions {
			for _, counter := range function.Counters {
				for i := range counter.Values {
					counter.Values[i] = min(largest, 2*counter.Values[i])
				}
			}
		}
		profile[name] = file.Encode(1, largest)
	}
	slices.Sort(names)
	return names
}
