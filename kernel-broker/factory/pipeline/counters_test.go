// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/pgo"
	"github.com/kernelbroker/kernelbroker/tests/support/tartest"
)

// gcc12 in the version word of its counters.
const gcc12 = 0x4232322a

func counts(flow uint32, values ...int64) string {
	file := pgo.File{Version: gcc12, Functions: []pgo.Function{{Ident: 7, Lines: 1, Flow: flow, Counters: []pgo.Counter{{Values: values}}}}}
	return string(file.Encode(1, file.Max()))
}

// archive writes what a node delivers.
func archive(t *testing.T, files map[string]string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "counters.tar.gz")
	if err := os.WriteFile(path, tartest.Zip(unzipped(t, files)), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func unzipped(t testing.TB, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	packed := tar.NewWriter(&out)
	var err error
	for _, name := range slices.Sorted(maps.Keys(files)) {
		err = errors.Join(err, packed.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name]))}))
		_, wrong := io.WriteString(packed, files[name])
		err = errors.Join(err, wrong)
	}
	if err = errors.Join(err, packed.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// addedUp runs the step after one that made an instrumented kernel.
func addedUp(t *testing.T, all ...Counters) (files map[string][]byte, err error) {
	t.Helper()
	b := &builder{p: &Pipeline{Counters: all}}
	b.add("instrumented", "", Inputs{}, nil, light, func(_ context.Context, w *graph.Work) error {
		return errors.Join(kernel(w.Dir, "6.1-counts", "instrumented", build.Manifest{}), put(w, objectsFile, "/build/objects\n"))
	})
	b.profileOfRuns()
	if b.err != nil {
		return nil, b.err
	}
	g, err := graph.New(b.steps...)
	if err != nil {
		t.Fatal(err)
	}
	runner := &graph.Runner{Store: StoreIn(quickDir(t)), Parallel: 1}
	results, err := runner.Run(t.Context(), "fake", g)
	if err != nil {
		return nil, err
	}
	return pgo.ReadFolder(filepath.Join(results["profile"].Files(), profileDir))
}

const below = "gcov/build/objects/"

func TestCountersOfRuns(t *testing.T) {
	build := digest("instrumented")[7:47]
	first := archive(t, map[string]string{below + "fs/a.gcda": counts(1, 5, 2), below + "mm/b.gcda": counts(1, 1), "gcov.copying/build/objects/fs/a.gcda": counts(1, 1, 2)})
	second := archive(t, map[string]string{below + "fs/a.gcda": counts(1, 10, 0)})
	files, err := addedUp(t, Counters{Run: 7, Node: "n1", BuildID: build, Path: first}, Counters{Run: 8, Node: "n1", BuildID: build, Path: second})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 2 {
		t.Fatalf("%d objects", len(files))
	}
	sum, err := pgo.Parse(files["fs/a"])
	if err != nil || !slices.Equal(sum.Functions[0].Counters[0].Values, []int64{14, 0}) {
		t.Errorf("%+v, %v", sum, err)
	}
}

func TestCountersRefused(t *testing.T) {
	build := digest("instrumented")[7:47]
	good := map[string]string{below + "fs/a.gcda": counts(1, 5)}
	for _, c := range []struct {
		name  string
		build string
		files map[string]string
		says  string
	}{
		{"another source tree", strings.Repeat("ab", 20), good, "run 7, node \"n1\": it counted on build abab"},
		{"a path out of the folder", build, map[string]string{"gcov/../../x.gcda": counts(1, 1)}, "does not belong"},
		{"a path out of the folder once GCC's name is read", build, map[string]string{below + "..#..#x.gcda": counts(1, 1)}, "no path of an object"},
		{"more than a disk has folders", build, map[string]string{below + strings.Repeat("a/", mostCounters) + "x.gcda": counts(1, 1)}, "over the limit"},
		{"a path beside the folder", build, map[string]string{"gcov/../x.gcda": counts(1, 1)}, "does not belong"},
		{"another folder", build, map[string]string{"etc/passwd": "x"}, "does not belong"},
		{"no counters", build, map[string]string{below + "fs/a.gcda": "junk"}, "no profile of gcc 12"},
		{"nothing", build, nil, "run 7"},
		{"objects of elsewhere", build, map[string]string{"gcov/other/fs/a.gcda": counts(1, 1)}, "run 7"},
	} {
		_, err := addedUp(t, Counters{Run: 7, Node: "n1", BuildID: c.build, Path: archive(t, c.files)})
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	many := map[string]string{}
	for i := range mostCounters + 1 {
		many[fmt.Sprintf("%sfs/%d.gcda", below, i)] = ""
	}
	if _, err := addedUp(t, Counters{Run: 7, Node: "n1", BuildID: build, Path: archive(t, many)}); err == nil || !strings.Contains(err.Error(), "exceeds the limit of files and folders") {
		t.Errorf("many files: %v", err)
	}
	twoFlows := []Counters{{Run: 7, Node: "n1", BuildID: build, Path: archive(t, good)},
		{Run: 8, Node: "n2", BuildID: build, Path: archive(t, map[string]string{below + "fs/a.gcda": counts(2, 5)})}}
	if _, err := addedUp(t, twoFlows...); err == nil || !strings.Contains(err.Error(), `run 8, node "n2"`) {
		t.Errorf("two kernels: %v", err)
	}
	if _, err := addedUp(t, Counters{Path: "/nowhere"}); err == nil {
		t.Error("no archive, no error")
	}
}

// With counters the workload is not run for a profile; all else is as before.
func TestGraphWithCounters(t *testing.T) {
	w := newWorld(t, nil)
	w.pipe.Counters = []Counters{{Run: 7, Node: "n1", BuildID: "ab", Path: archive(t, nil)}}
	g, err := w.pipe.Graph()
	if err != nil {
		t.Fatal(err)
	}
	if step, has := g.Step("profile"); !has || step.Kind != "profile-of-runs" {
		t.Errorf("profile is %+v", step)
	}
}
