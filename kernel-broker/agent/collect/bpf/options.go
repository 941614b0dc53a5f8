// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

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
