// SPDX-License-Identifier: Apache-2.0

// Package bpf contains the collectors' kernel programs, compiled from the C files beside it, and starts them for one
// job.
//
// The programs are compiled with the agent and relocated when they are loaded, by the running kernel's type information
// (BTF). Missing features are found before anything is loaded: a program whose tracepoint or function is missing is left
// out if it is optional; otherwise the collector is refused with the reason.
//
// Links that only this process holds attach the programs.
package bpf

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

//go:embed objects
var objects embed.FS

// Wanted is a collector's need of programs.
type Wanted struct {
	Collector profiling.Collector
	// Object is the C file's name without its ending.
	Object string
	// Parts maps optional programs to what is missing without them. Programs of one part are left out together.
	Parts map[string]string
	// Instead maps a program to the one in whose place it is used where that one's function is missing.
	Instead map[string]string
	// Stays are programs that stay attached in a pause: they cost almost nothing then, and attaching disturbs every CPU.
	Stays map[string]bool
}

// Spec reads the compiled programs.
func (w Wanted) Spec() (*ebpf.CollectionSpec, error) {
	image, err := objects.ReadFile("objects/" + w.Object + ".o")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, w.refuse(profiling.NoPrograms, "this agent was built without BPF programs",
			"build it by make build, which needs clang and libbpf-dev")
	}
	if err != nil {
		return nil, fmt.Errorf("bpf object %q: %w", w.Object, err)
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(image))
	if err != nil {
		return nil, fmt.Errorf("bpf object %q: %w", w.Object, err)
	}
	return spec, nil
}

// Check reports whether the running kernel can run the programs, without loading them.
func (w Wanted) Check() error {
	_, _, err := w.usable()
	return err
}

// usable reads the programs, less the parts that the kernel does not have.
func (w Wanted) usable() (*ebpf.CollectionSpec, map[string]*profiling.Unsupported, error) {
	spec, err := w.Spec()
	if err != nil {
		return nil, nil, err
	}
	if err := w.kernelRuns(); err != nil {
		return nil, nil, err
	}
	types, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, nil, w.noTypes(err)
	}
	lacking := map[string]*profiling.Unsupported{}
	for name, program := range spec.Programs {
		if lack := w.lacks(types, program); lack != nil {
			lacking[name] = lack
		}
	}
	for _, name := range w.needless(lacking) {
		delete(spec.Programs, name)
		delete(lacking, name)
	}
	missing := map[string]*profiling.Unsupported{}
	for name, lack := range lacking {
		part, optional := w.Parts[name]
		if !optional {
			return nil, nil, lack
		}
		missing[part] = lack
	}
	for name, part := range w.Parts {
		if missing[part] != nil {
			delete(spec.Programs, name)
		}
	}
	return spec, missing, nil
}

// needless are the programs in whose place another one is used.
func (w Wanted) needless(lacking map[string]*profiling.Unsupported) []string {
	var names []string
	for name, first := range w.Instead {
		switch {
		case lacking[first] == nil:
			names = append(names, name)
		case lacking[name] == nil:
			names = append(names, first)
		}
	}
	return names
}

// noTypes refuses a kernel without BTF, the first thing that most kernels lack.
func (w Wanted) noTypes(err error) error {
	detail := "the kernel has no type information (BTF)"
	if !errors.Is(err, ebpf.ErrNotSupported) {
		detail += ": " + err.Error()
	}
	return w.refuse(profiling.NoBTF, detail, remedy(append([]string{"CONFIG_DEBUG_INFO_BTF"}, lacking("/")...)...))
}

// kernelRuns checks rights and restrictions of BPF.
func (w Wanted) kernelRuns() error {
	if os.Geteuid() != 0 {
		return w.refuse(profiling.NoRights, "the agent does not run as root", "run it as root")
	}
	const lockdown = "/sys/kernel/security/lockdown"
	text, err := os.ReadFile(lockdown)
	if err == nil && strings.Contains(string(text), "[confidentiality]") {
		return w.refuse(profiling.LockedDown, "the kernel is locked down for confidentiality, which forbids tracing it",
			"boot with lockdown=integrity")
	}
	if _, err := os.Stat("/proc/sys/kernel/unprivileged_bpf_disabled"); err != nil {
		return w.refuse(profiling.NoBPF, "the kernel has no bpf system call",
			remedy("CONFIG_BPF_SYSCALL and CONFIG_BPF_JIT"))
	}
	return nil
}

// lacks returns a program's missing requirement of the kernel, or nil.
func (w Wanted) lacks(types *btf.Spec, program *ebpf.ProgramSpec) *profiling.Unsupported {
	switch {
	case program.AttachType == ebpf.AttachTraceKprobeMulti:
		var found *btf.Func
		if types.TypeByName("register_fprobe_ips", &found) == nil {
			return nil
		}
		return w.refuse(profiling.NoFunction, "the kernel cannot run a program at each of its functions", remedy("CONFIG_FPROBE"))
	case program.Type != ebpf.Tracing:
		return nil
	case program.AttachType == ebpf.AttachTraceRawTp:
		var found *btf.Typedef
		if types.TypeByName("btf_trace_"+program.AttachTo, &found) == nil {
			return nil
		}
		return w.refuse(profiling.NoTracepoint, fmt.Sprintf("the kernel has no tracepoint %q", program.AttachTo),
			remedy("CONFIG_TRACEPOINTS, CONFIG_FTRACE or CONFIG_FTRACE_SYSCALLS"))
	}
	var found *btf.Func
	if types.TypeByName(program.AttachTo, &found) == nil {
		return nil
	}
	return w.refuse(profiling.NoFunction, fmt.Sprintf("the kernel has no function %q that can be traced", program.AttachTo),
		remedy("CONFIG_FUNCTION_TRACER, CONFIG_DYNAMIC_FTRACE or the option that the function is of"))
}

func (w Wanted) refuse(reason profiling.Reason, detail, remedy string) *profiling.Unsupported {
	return &profiling.Unsupported{Collector: w.Collector, Reason: reason, Detail: detail, Remedy: remedy}
}

// refused converts a kernel error to a refusal.
func (w Wanted) refused(doing string, err error) *profiling.Unsupported {
	var known *profiling.Unsupported
	if errors.As(err, &known) {
		return known
	}
	reason, remedy := profiling.BrokenStart, ""
	if errors.Is(err, unix.EPERM) {
		reason, remedy = profiling.NoRights, "run the agent as root, outside of a container"
	}
	var verifier *ebpf.VerifierError
	if errors.As(err, &verifier) {
		// The last lines have the verifier's objection.
		from := max(0, len(verifier.Log)-3)
		err = fmt.Errorf("%w: %s", err, strings.Join(verifier.Log[from:], "; "))
	}
	return w.refuse(reason, fmt.Sprintf("%s: %v", doing, err), remedy)
}

// order attaches programs for exits first, so that no entry is seen without its exit, and those for entries last: a task
// that is switched out in a call, unseen, would leave its call to the next one.
func order(programs map[string]*ebpf.Program) []string {
	turn := func(name string) int {
		switch {
		case strings.HasSuffix(name, "_ends"):
			return 0
		case strings.HasSuffix(name, "_begins"):
			return 2
		}
		return 1
	}
	return slices.SortedFunc(maps.Keys(programs), func(a, b string) int { return cmp.Or(turn(a)-turn(b), strings.Compare(a, b)) })
}

// traces are files that a kernel has only with certain options. Without BTF nothing else can be looked up; otherwise a
// rebuild with BTF alone would then report the next missing option.
var traces = []struct{ file, options string }{
	{"proc/sys/net/core/bpf_jit_enable", "CONFIG_BPF_JIT"},
	// On x86 the BPF compiler takes its memory from the modules' allocator.
	{"proc/modules", "CONFIG_MODULES"},
	{"sys/kernel/tracing", "CONFIG_FTRACE, CONFIG_FUNCTION_TRACER, CONFIG_DYNAMIC_FTRACE, CONFIG_FTRACE_SYSCALLS"},
}

// lacking are the options that the running kernel shows not to have, below root.
func lacking(root string) []string {
	var options []string
	for _, trace := range traces {
		if _, err := os.Stat(filepath.Join(root, trace.file)); errors.Is(err, fs.ErrNotExist) {
			options = append(options, trace.options)
		}
	}
	return options
}

// remedy starts with what the job's owner can do, since a line in a list has no room for more.
func remedy(options ...string) string {
	return "let the job use a kernel with the fragment profiling (docs/ops/profiling.md), or the distribution's; " +
		"this one was built without " + strings.Join(options, ", ")
}
