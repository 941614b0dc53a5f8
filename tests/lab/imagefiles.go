// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed files/rc.sh files/inittab files/main.sh files/exec.sh files/probe.sh
var guestFiles embed.FS

// entry is one file of the nodes' disk image: a copy of a host file, a text of
// the lab's own, a link or an empty folder.
type entry struct {
	target string // path on the node
	source string // host file, perhaps in another root
	text   []byte
	link   string
	mode   os.FileMode
}

// programs are programs of every node, besides busybox. Their libraries are added automatically.
var programs = []string{
	"/usr/sbin/slurmd", "/usr/sbin/slurmstepd", "/usr/sbin/munged", "/usr/sbin/kexec",
	"/usr/bin/srun", "/usr/bin/sbatch", "/usr/bin/scontrol", "/usr/bin/squeue",
	"/usr/bin/sinfo", "/usr/bin/scancel", "/usr/bin/munge", "/usr/bin/unmunge", "/bin/bash",
}

// optionalPrograms are added if the system has them.
var optionalPrograms = []string{"/usr/bin/strace"}

// dlopened at run time and therefore in no header: slurmd ends threads with pthread_exit, which loads libgcc_s.
var dlopened = []string{"libgcc_s.so.1"}

const slurmPlugins = "/usr/lib/x86_64-linux-gnu/slurm-wlm"

// pluginsLeftOut are of no use on a node of a lab, or need large libraries.
var pluginsLeftOut = []string{
	"openapi_", "rest_", "mpi_pmix", "burst_buffer_", "_lua.so", "_cray_", "libslurm_pmi", "serializer_url", "serializer_yaml",
}

// scripts maps the lab's own files to their places on the node.
var scripts = map[string]string{
	"rc.sh":    "/usr/libexec/kblab/rc",
	"main.sh":  "/usr/libexec/kblab/main",
	"exec.sh":  "/usr/libexec/kblab/exec",
	"probe.sh": "/usr/libexec/kblab/probe",
	"inittab":  "/etc/inittab",
}

// emptyFolders are mount points.
var emptyFolders = []string{
	"/proc", "/sys", "/dev", "/run", "/tmp", "/var", "/home", "/root", "/mnt/lab", "/mnt/node", "/boot",
	pluginDir, libexec, "/usr/local/bin",
}

// links merge /usr and lead from /etc to the files that each node gets at boot.
var links = map[string]string{
	"/bin": "usr/bin", "/sbin": "usr/sbin", "/lib": "usr/lib", "/lib64": "usr/lib64",
	"/etc/passwd": "/run/etc/passwd", "/etc/group": "/run/etc/group", "/etc/hosts": "/run/etc/hosts",
	"/etc/nsswitch.conf": "/run/etc/nsswitch.conf", "/etc/mtab": "/proc/mounts",
	"/etc/slurm": "/mnt/lab/conf/slurm", "/etc/kernel-broker": "/mnt/node/etc/kernel-broker",
}

// imageEntries lists the whole disk image, sorted by path.
func imageEntries(o Options, s system, k Kernel) ([]entry, error) {
	var list []entry
	for _, d := range emptyFolders {
		list = append(list, entry{target: d, mode: os.ModeDir | 0o755})
	}
	for target, to := range links {
		list = append(list, entry{target: target, link: to})
	}
	for name, target := range scripts {
		text, err := guestFiles.ReadFile("files/" + name)
		if err != nil {
			return nil, fmt.Errorf("file %q: %w", name, err)
		}
		list = append(list, entry{target: target, text: text, mode: 0o755})
	}
	host, err := hostFiles(o, s)
	if err != nil {
		return nil, err
	}
	list = append(list, host...)
	box, err := busyboxEntries(list)
	if err != nil {
		return nil, err
	}
	list = append(list, box...)
	list = append(list, entry{target: nodeKernel, source: k.Image, mode: 0o644})
	if k.Initrd != "" {
		list = append(list, entry{target: nodeInitrd, source: k.Initrd, mode: 0o644})
	}
	slices.SortFunc(list, func(a, b entry) int { return strings.Compare(a.target, b.target) })
	return slices.CompactFunc(list, func(a, b entry) bool { return a.target == b.target }), nil
}

// hostFiles are programs with libraries, Slurm's plugins, the product and
// workloads.
func hostFiles(o Options, s system) ([]entry, error) {
	sources := map[string]string{}
	for _, p := range programs {
		sources[p] = s.Path(p)
	}
	for _, p := range optionalPrograms {
		if _, err := os.Stat(s.Path(p)); err == nil {
			sources[p] = s.Path(p)
		}
	}
	plugins, err := filepath.Glob(s.Path(slurmPlugins + "/*.so"))
	if err != nil || len(plugins) == 0 {
		return nil, fmt.Errorf("folder %q: no Slurm plugins", s.Path(slurmPlugins))
	}
	for _, p := range plugins {
		name := filepath.Base(p)
		if !slices.ContainsFunc(pluginsLeftOut, func(part string) bool { return strings.Contains(name, part) }) {
			sources[filepath.Join(slurmPlugins, name)] = p
		}
	}
	if !o.WithoutProduct {
		product, err := findProduct(o, s.Plugin, nodeFiles)
		if err != nil {
			return nil, err
		}
		for target, source := range product {
			sources[target] = source
		}
	}
	programs, err := workloads(o.Repo)
	if err != nil {
		return nil, err
	}
	for _, program := range programs {
		sources["/usr/local/bin/"+filepath.Base(program)] = program
	}
	for target, source := range o.Files {
		sources[target] = source
	}
	return withLibraries(s, sources)
}

// workloads are the programs that are built, without those with sanitizers: these
// are for their own tests, and their libraries are the compiler's.
func workloads(repo string) ([]string, error) {
	all, err := filepath.Glob(filepath.Join(repo, "build", "workloads", "*"))
	if err != nil {
		return nil, fmt.Errorf("workloads: %w", err)
	}
	return slices.DeleteFunc(all, func(path string) bool {
		st, err := os.Stat(path)
		return err != nil || !st.Mode().IsRegular() || st.Mode()&0o111 == 0 || strings.HasSuffix(path, "-sanitized")
	}), nil
}

// withLibraries adds the shared libraries of all ELF files, at their own paths.
func withLibraries(s system, sources map[string]string) ([]entry, error) {
	var list []entry
	r := newResolver(s)
	for target, source := range sources {
		st, err := os.Stat(source)
		if err != nil {
			return nil, fmt.Errorf("image file: %w", err)
		}
		list = append(list, entry{target: merged(target), source: source, mode: st.Mode().Perm()})
		if err := r.add(source); err != nil {
			return nil, err
		}
	}
	for _, name := range dlopened {
		if err := r.library(name, nil); err != nil {
			return nil, err
		}
	}
	for target, source := range r.found {
		list = append(list, entry{target: merged(target), source: source, mode: 0o755})
	}
	return list, nil
}

// merged rewrites a path for an image where /bin and so on are links.
func merged(path string) string {
	for _, top := range []string{"/bin/", "/sbin/", "/lib/", "/lib64/"} {
		if strings.HasPrefix(path, top) {
			return "/usr" + path
		}
	}
	return path
}
