// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/kernelbroker/kernelbroker/kernel-broker/doctor"
)

// program is one that slurm.conf names: its key, the name of the product's, and whether it runs on nodes.
type program struct {
	key, name string
	onNodes   bool
}

var programs = []program{
	{"RebootProgram", "reboot", false},
	{"PrologSlurmctld", "prolog-slurmctld", false},
	{"EpilogSlurmctld", "epilog-slurmctld", false},
	{"Epilog", "epilog", true},
}

// programs looks at those that this host runs.
func (s *surveyor) programs() {
	s.site.Programs = map[string]doctor.Fact[[]doctor.Program]{}
	for _, p := range programs {
		switch {
		case s.site.Slurm.Value == nil:
			s.site.Programs[p.key] = doctor.Unknown[[]doctor.Program](s.site.Slurm.Why)
		case p.onNodes && s.node == "":
			s.site.Programs[p.key] = doctor.Unknown[[]doctor.Program](noNode)
		case !p.onNodes && !s.controller:
			s.site.Programs[p.key] = doctor.Unknown[[]doctor.Program](noController)
		default:
			var found []doctor.Program
			for _, pattern := range s.site.Slurm.Value.Values(p.key) {
				for _, path := range expand(pattern) {
					found = append(found, doctor.Program{Path: path, Is: whatIs(path, p.name)})
				}
			}
			s.site.Programs[p.key] = doctor.Known(found)
		}
	}
}

// expand is the pattern itself where nothing matches.
func expand(pattern string) []string {
	if list, err := filepath.Glob(pattern); err == nil && len(list) > 0 {
		return list
	}
	return []string{pattern}
}

// maxScript is what is read of a program to find out whether it is a script.
const maxScript = 64 << 10

// whatIs recognises the product's program by what the Go linker wrote into it, so that copies, links and other prefixes
// count, but only by the name that it acts on.
func whatIs(path, name string) doctor.ProgramIs {
	info, err := os.Stat(path)
	switch {
	case err != nil || info.IsDir():
		return doctor.ProgramMissing
	case info.Mode()&0o111 == 0:
		return doctor.ProgramNotExecutable
	}
	if built, err := buildinfo.ReadFile(path); err == nil {
		hook := strings.HasSuffix(built.Path, "/kernel-broker-hook") || strings.HasSuffix(built.Path, "/kernel-broker-node-hook")
		if hook && filepath.Base(path) == name {
			return doctor.ProgramOurs
		}
		return doctor.ProgramOther
	}
	text, err := readSome(path, maxScript)
	if err == nil && bytes.HasPrefix(text, []byte("#!")) && callsOurs(string(text), name) {
		return doctor.ProgramCallsOurs
	}
	return doctor.ProgramOther
}

// callsOurs reports whether a line of a script, without its comment, has the path of the product's program.
func callsOurs(text, name string) bool {
	for line := range strings.Lines(text) {
		if i := strings.IndexByte(line, '#'); i == 0 || i > 0 && (line[i-1] == ' ' || line[i-1] == '\t') {
			line = line[:i]
		}
		if strings.Contains(line, "/"+name) && strings.Contains(line, "kernel-broker") {
			return true
		}
	}
	return false
}

func readSome(path string, most int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, most))
}

// slurmDir is the folder of slurm.conf.
func (s *surveyor) slurmDir() string {
	if c := s.site.Slurm.Value; c != nil && filepath.IsAbs(c.Value("SLURM_CONF")) {
		return filepath.Dir(c.Value("SLURM_CONF"))
	}
	return filepath.Dir(cmp.Or(s.client.SlurmConf, "/etc/slurm/slurm.conf"))
}

// maxText of a script or a configuration.
const maxText = 1 << 20

func (s *surveyor) jobSubmit() {
	c := s.site.Slurm.Value
	switch {
	case !s.controller:
		s.site.JobSubmit = doctor.Unknown[doctor.JobSubmit](noController)
		return
	case c != nil && !c.Has("JobSubmitPlugins", "lua"):
		s.site.JobSubmit = doctor.Unknown[doctor.JobSubmit]("JobSubmitPlugins has no lua")
		return
	}
	path := filepath.Join(s.slurmDir(), "job_submit.lua")
	text, err := readSome(path, maxText)
	j := doctor.ParseJobSubmit(string(text))
	if j.Path = path; err != nil {
		j.Error = err.Error()
	}
	j.Missing = j.Loads != "" && !exists(j.Loads)
	s.site.JobSubmit = doctor.Known(j)
}

// counters says why Slurm's user cannot write where its hooks count.
func (s *surveyor) counters() doctor.Fact[string] {
	if !s.controller {
		return doctor.Unknown[string](noController)
	}
	owner, err := s.slurmAccount()
	if err != nil {
		return doctor.Unknown[string](err.Error())
	}
	info, err := os.Stat(s.client.StateDir)
	if errors.Is(err, fs.ErrPermission) {
		return doctor.Unknown[string](err.Error())
	}
	if err != nil {
		return doctor.Known(err.Error())
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if ok && owner.uid != 0 && stat.Uid != owner.uid && info.Mode().Perm()&0o022 == 0 {
		return doctor.Known(fmt.Sprintf("user %s cannot write in %s", owner.name, s.client.StateDir))
	}
	return doctor.Known("")
}

// DefaultSnapshot is the plugin's default.
const DefaultSnapshot = "/var/lib/kernel-broker/catalog.snapshot"

// plugin looks at plugstack.conf, and from there at the plugin and its snapshot.
func (s *surveyor) plugin(ctx context.Context) {
	p := doctor.Plugstack{Path: filepath.Join(s.slurmDir(), "plugstack.conf")}
	if c := s.site.Slurm.Value; c != nil {
		p.Path = cmp.Or(c.Value("PlugStackConfig"), p.Path)
	}
	// Where nodes have no configuration of their own, slurmd keeps slurmctld's here.
	if fetched := "/run/slurm/conf/" + filepath.Base(p.Path); !exists(p.Path) && exists(fetched) {
		p.Path = fetched
	}
	var err error
	if p.Lines, err = readPlugstack(p.Path, 0); err != nil {
		p.Error = err.Error()
	}
	s.site.Plugstack = doctor.Known(p)
	i := slices.IndexFunc(p.Lines, doctor.PlugstackLine.Ours)
	if i < 0 {
		const why = "plugstack.conf does not name the plugin"
		s.site.Plugin, s.site.Snapshot = doctor.Unknown[doctor.Plugin](why), doctor.Unknown[doctor.Snapshot](why)
		return
	}
	s.site.Plugin = doctor.Known(s.pluginFile(ctx, p.Lines[i].Path))
	s.snapshot(ctx, cmp.Or(p.Lines[i].Argument("snapshot"), DefaultSnapshot))
}

// maxIncludes is how deep files may include each other.
const maxIncludes = 8

func readPlugstack(path string, depth int) ([]doctor.PlugstackLine, error) {
	text, err := readSome(path, maxText)
	if err != nil {
		return nil, err
	}
	var lines []doctor.PlugstackLine
	for _, line := range doctor.ParsePlugstack(string(text)) {
		if line.Word != "include" {
			line.File = path
			lines = append(lines, line)
			continue
		}
		pattern := line.Path
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(filepath.Dir(path), pattern)
		}
		list, err := filepath.Glob(pattern)
		if err != nil || depth >= maxIncludes {
			return lines, fmt.Errorf("include %s cannot be followed", line.Path)
		}
		for _, file := range list {
			more, err := readPlugstack(file, depth+1)
			lines = append(lines, more...)
			if err != nil {
				return lines, err
			}
		}
	}
	return lines, nil
}

func (s *surveyor) pluginFile(ctx context.Context, path string) doctor.Plugin {
	c := s.site.Slurm.Value
	if !filepath.IsAbs(path) && c != nil {
		for dir := range strings.SplitSeq(c.Value("PluginDir"), ":") {
			if exists(filepath.Join(dir, path)) {
				path = filepath.Join(dir, path)
			}
		}
	}
	p := doctor.Plugin{Path: path}
	if text, err := s.run(ctx, "--version"); err == nil {
		p.Installed = doctor.InstalledRelease(text)
	}
	version, err := pluginVersion(path)
	if err != nil {
		p.Error = err.Error()
		return p
	}
	p.Slurm = doctor.SlurmRelease(version)
	return p
}

// pluginVersion reads the variable plugin_version, the version of Slurm that the plugin was compiled for.
func pluginVersion(path string) (uint32, error) {
	file, err := elf.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	for _, symbol := range symbols {
		if symbol.Name != "plugin_version" || int(symbol.Section) >= len(file.Sections) {
			continue
		}
		section := file.Sections[symbol.Section]
		raw := make([]byte, 4)
		if _, err := section.ReadAt(raw, int64(symbol.Value-section.Addr)); err != nil {
			return 0, fmt.Errorf("%s: plugin_version: %w", path, err)
		}
		return file.ByteOrder.Uint32(raw), nil
	}
	return 0, fmt.Errorf("%s is not a Slurm plugin: it has no plugin_version", path)
}

// disks of the broker and of the agent.
func (s *surveyor) disks() {
	var disks []doctor.Disk
	var paths []string
	if f := s.site.BrokerFile.Value; f != nil {
		paths = append(paths, s.dataDir())
	}
	if a := s.site.Agent.Value; a != nil && a.Error == "" {
		paths = append(paths, s.cacheDir())
	}
	for _, path := range paths {
		var stat syscall.Statfs_t
		if err := syscall.Statfs(path, &stat); err == nil {
			disks = append(disks, doctor.Disk{Path: path, Free: stat.Bavail * uint64(stat.Bsize), Size: stat.Blocks * uint64(stat.Bsize)})
		}
	}
	s.site.Disks = doctor.Known(disks)
	if len(disks) == 0 {
		s.site.Disks = doctor.Unknown[[]doctor.Disk]("neither broker nor agent keeps files on this host")
	}
}
