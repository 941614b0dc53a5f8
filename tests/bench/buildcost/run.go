// SPDX-License-Identifier: Apache-2.0

package buildcost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/bench/figures"
)

// Options of a run.
type Options struct {
	// Kernel is the recipe, with a profile, and Second the workload of a
	// second profile of its configuration.
	Kernel, Second string
	// Kernelctl is the program, Catalog the folder that has the recipe.
	Kernelctl, Catalog string
	// Source is a folder of unpacked sources, as a cache of builds has it:
	// what is fetched and unpacked is not counted, for nobody.
	Source string
	// Jobs are compilers at a time.
	Jobs int
	// Dir is the folder of the run. It is removed before and after.
	Dir string
}

type run struct {
	Options
	progress io.Writer
	cache    string
	catalog  string
	cpu      figures.Book
	elapsed  figures.Book
}

// Run measures. Whatever the builds say goes to progress.
func Run(ctx context.Context, o Options, progress io.Writer) (result Result, err error) {
	r := &run{Options: o, progress: progress, cache: filepath.Join(o.Dir, "cache"), catalog: filepath.Join(o.Dir, "catalog")}
	if err := os.RemoveAll(o.Dir); err != nil {
		return Result{}, fmt.Errorf("folder %q: %w", o.Dir, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.Dir)) }()
	config, err := r.prepare(ctx)
	if err != nil {
		return Result{}, err
	}
	for _, part := range []struct {
		what string
		do   func() (*exec.Cmd, error)
	}{
		{plainMake, func() (*exec.Cmd, error) { return r.plain(ctx, config, "1") }},
		{firstBuild, func() (*exec.Cmd, error) { return r.build(ctx, o.Kernel), nil }},
		{secondProfile, func() (*exec.Cmd, error) { return r.build(ctx, r.second()), nil }},
		{byBranches, func() (*exec.Cmd, error) { return r.build(ctx, r.branches()), nil }},
		{plainMake, func() (*exec.Cmd, error) { return r.plain(ctx, config, "2") }},
	} {
		cmd, err := part.do()
		if err == nil {
			err = r.measure(part.what, cmd)
		}
		if err != nil {
			return Result{}, fmt.Errorf("%s: %w", part.what, err)
		}
	}
	result = Result{CPU: r.cpu.Measures, Elapsed: r.elapsed.Measures}
	if result.Goals, err = goals(&r.cpu); err != nil {
		return Result{}, err
	}
	return result, nil
}

// Series for benchstat.
func (r *Result) Series() []figures.Series {
	cpu, elapsed := figures.Book{Measures: r.CPU}, figures.Book{Measures: r.Elapsed}
	return append(cpu.Series("Build", "cpu-sec/op"), elapsed.Series("Build", "sec/op")...)
}

// prepare makes a cache with nothing but the source and the configuration, and
// a catalog with the other recipes.
func (r *run) prepare(ctx context.Context) (config string, err error) {
	if err := os.MkdirAll(r.cache, 0o755); err != nil {
		return "", fmt.Errorf("cache: %w", err)
	}
	for _, argv := range [][]string{
		{"cp", "-al", r.Source, filepath.Join(r.cache, "source")},
		{"cp", "-r", r.Catalog, r.catalog},
	} {
		if err := r.command(ctx, argv...).Run(); err != nil {
			return "", fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
		}
	}
	if err := r.writeRecipes(); err != nil {
		return "", err
	}
	if err := r.build(ctx, r.Kernel, "--until", "config").Run(); err != nil {
		return "", fmt.Errorf("configuration: %w", err)
	}
	found, err := filepath.Glob(filepath.Join(r.cache, "graph/steps/config/*/result/files"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("configuration: found %q, %w", found, err)
	}
	return found[0], nil
}

func (r *run) second() string { return r.Kernel + "-second" }

func (r *run) branches() string { return r.Kernel + "-branches" }

// writeRecipes writes one recipe that differs in name and workload only, and one that is optimised by branches.
func (r *run) writeRecipes() error {
	text, err := os.ReadFile(filepath.Join(r.catalog, "kernels", r.Kernel+".yaml"))
	if err != nil {
		return fmt.Errorf("kernel %q: %w", r.Kernel, err)
	}
	for _, values := range []map[string]string{
		{"name": r.second(), "workload": r.Second},
		{"name": r.branches(), "compiler": "clang-19", "optimisation": "autofdo"},
	} {
		changed, err := otherRecipe(string(text), values)
		if err != nil {
			return fmt.Errorf("kernel %q: %w", r.Kernel, err)
		}
		if err := os.WriteFile(filepath.Join(r.catalog, "kernels", values["name"]+".yaml"), []byte(changed), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// otherRecipe gives keys of a recipe other values. Each is there once.
func otherRecipe(text string, values map[string]string) (string, error) {
	lines := strings.Split(text, "\n")
	found := map[string]int{}
	for i, line := range lines {
		key, _, _ := strings.Cut(line, ":")
		if value, ok := values[key]; ok {
			lines[i] = key + ": " + value
			found[key]++
		}
	}
	for key := range values {
		if found[key] != 1 {
			return "", fmt.Errorf("its recipe has the key %q %d times, want once", key, found[key])
		}
	}
	return strings.Join(lines, "\n"), nil
}

// build is a build of a kernel that is never published.
func (r *run) build(ctx context.Context, kernel string, more ...string) *exec.Cmd {
	argv := append([]string{r.Kernelctl, "kernel", "build", kernel, "--publish", "never",
		"--catalog", r.catalog, "--cache", r.cache, "--jobs", fmt.Sprint(r.Jobs)}, more...)
	return r.command(ctx, argv...)
}

// plain is make of the same configuration, in a folder of its own.
func (r *run) plain(ctx context.Context, config, number string) (*exec.Cmd, error) {
	objects := filepath.Join(r.Dir, "plain-"+number)
	if err := os.MkdirAll(objects, 0o755); err != nil {
		return nil, err
	}
	tree, err := r.tree()
	if err != nil {
		return nil, err
	}
	cmd := r.command(ctx, "sh", "-ec", `cp "$1/config" "$3/.config"
make -s -C "$2" O="$3" CC=gcc-12 HOSTCC=gcc-12 olddefconfig
exec make -s -C "$2" O="$3" CC=gcc-12 HOSTCC=gcc-12 -j"$4" bzImage`,
		"sh", config, tree, objects, fmt.Sprint(r.Jobs))
	return cmd, nil
}

// tree is the source that the builds use. Caches hold others beside it, such as
// those of recipes with patches; objects of a build name theirs.
func (r *run) tree() (string, error) {
	links, err := filepath.Glob(filepath.Join(r.cache, "compiled/*/Makefile"))
	if err != nil || len(links) == 0 {
		return "", errors.Join(fmt.Errorf("no folder of objects in %q names its source", r.cache), err)
	}
	trees := make([]string, len(links))
	for i, link := range links {
		file, err := os.Readlink(link)
		if err != nil {
			return "", fmt.Errorf("source tree: %w", err)
		}
		trees[i] = filepath.Dir(file)
	}
	slices.Sort(trees)
	if trees = slices.Compact(trees); len(trees) != 1 {
		return "", fmt.Errorf("builds of one recipe used several source trees: %q", trees)
	}
	return trees[0], nil
}

func (r *run) command(ctx context.Context, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = r.progress, r.progress
	return cmd
}

func (r *run) measure(what string, cmd *exec.Cmd) error {
	fmt.Fprintf(r.progress, "== %s\n", what)
	begin := time.Now()
	if err := cmd.Run(); err != nil {
		return err
	}
	state := cmd.ProcessState
	r.cpu.Add(what, "", (state.UserTime() + state.SystemTime()).Seconds())
	r.elapsed.Add(what, "", time.Since(begin).Seconds())
	return nil
}
