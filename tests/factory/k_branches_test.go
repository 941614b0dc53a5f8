// SPDX-License-Identifier: Apache-2.0

//go:build lab

package factory

import (
	"bytes"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/autofdo"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/tests/support/perftest"
)

const (
	// A write to a file in memory: outer calls caller, whose inlined function calls target by way of a thunk.
	outer, caller, inlined, target = "ksys_write", "vfs_write", "call_write_iter", "generic_file_write_iter"
	// clang has the address of an indirect call in r11.
	thunk, returns = "__x86_indirect_thunk_r11", "__x86_return_thunk"
)

// code is that of the functions above in a kernel with lines, by address.
type code struct {
	t       *testing.T
	vmlinux string
	at      map[uint64]instruction
	begin   map[string]uint64
}

// instruction has the function that it is in, where it leads to if it is a branch, and the address behind it.
type instruction struct {
	text, in string
	to, next uint64
}

func (i instruction) is(name string) bool { return strings.HasPrefix(i.text, name) }

func (i instruction) calls(function uint64) bool { return i.is("call") && i.to == function }

var objdumpLine = regexp.MustCompile(`(?m)^([0-9a-f]+)(?: <(.+)>:|:\s+((?:(?:call|j)\S+\s+0x([0-9a-f]+))?.*))$`)

func codeOf(t *testing.T, kernel string) code {
	t.Helper()
	c := code{t: t, vmlinux: filepath.Join(kernel, build.LinesFile), at: map[uint64]instruction{}, begin: map[string]uint64{}}
	functions := strings.Join([]string{outer, caller, target, thunk, returns}, ",")
	said := c.tool("llvm-objdump-19", "--disassemble-symbols="+functions, "--no-show-raw-insn", c.vmlinux)
	in, last := "", uint64(0)
	for _, line := range objdumpLine.FindAllStringSubmatch(said, -1) {
		at, _ := strconv.ParseUint(line[1], 16, 64) // the pattern has digits only
		to, _ := strconv.ParseUint(line[4], 16, 64) // 0 if it leads nowhere
		if line[2] != "" {
			in, last, c.begin[line[2]] = line[2], 0, at
			continue
		}
		c.at[at] = instruction{text: line[3], in: in, to: to}
		if before, has := c.at[last]; has {
			before.next = at
			c.at[last] = before
		}
		last = at
	}
	return c
}

func (c code) tool(name string, args ...string) string {
	c.t.Helper()
	said, err := exec.CommandContext(c.t.Context(), name, args...).Output()
	if err != nil {
		c.t.Fatalf("%s: %v", name, err)
	}
	return string(said)
}

// of reports whether an instruction is of a function by its lines, inlined or not.
func (c code) of(at uint64, function string) bool {
	c.t.Helper()
	return strings.Contains("\n"+c.tool("llvm-symbolizer-19", "--inlines", "--obj="+c.vmlinux, fmt.Sprintf("%#x", at)), "\n"+function+"\n")
}

// all instructions for which it holds.
func (c code) all(holds func(at uint64, i instruction) bool) []uint64 {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(c.at)), func(at uint64) bool { return !holds(at, c.at[at]) })
}

func (c code) only(what string, holds func(at uint64, i instruction) bool) uint64 {
	c.t.Helper()
	all := c.all(holds)
	if len(all) != 1 {
		c.t.Fatalf("%s has a %s at each of %#x", c.vmlinux, what, all)
	}
	return all[0]
}

// way is the shortest one to an instruction for which it holds: the branches taken on it, and the instruction. Nothing is known of
// functions that c has not: no way leads through these.
func (c code) way(from uint64, holds func(at uint64, i instruction) bool) (taken [][2]uint64, last uint64) {
	c.t.Helper()
	before := map[uint64]uint64{from: 0}
	for queue := []uint64{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		i, has := c.at[at]
		if has && holds(at, i) {
			for to, came := at, before[at]; came != 0; to, came = came, before[came] {
				if to != c.at[came].next {
					taken = append(taken, [2]uint64{came, to})
				}
			}
			slices.Reverse(taken)
			return taken, at
		}
		follow := []uint64{i.to, i.next}
		if i.is("jmp") || i.is("call") || i.is("ret") || i.is("ud2") {
			follow = follow[:1]
		}
		for _, to := range follow {
			if _, seen := before[to]; !seen {
				before[to] = at
				queue = append(queue, to)
			}
		}
	}
	c.t.Fatalf("%s: the way from %#x leads nowhere", c.vmlinux, from)
	return nil, 0
}

// stack is what a processor records, which has KASLR's distance in each address: the newest branch first.
func (c code) stack(moved uint64) [][2]uint64 {
	c.t.Helper()
	from := c.only("call of "+caller, func(_ uint64, i instruction) bool { return i.in == outer && i.calls(c.begin[caller]) })
	in, site := c.way(from, func(at uint64, i instruction) bool { return i.calls(c.begin[thunk]) && c.of(at, inlined) })
	through, out := c.way(site, func(_ uint64, i instruction) bool { return i.is("ret") })
	within, call := c.way(c.begin[target], func(_ uint64, i instruction) bool { return i.is("call") })
	stack := slices.Concat(in, through, [][2]uint64{{out, c.begin[target]}}, within, [][2]uint64{{call, c.at[call].to}})
	slices.Reverse(stack)
	for i := range stack {
		stack[i][0] += moved
		stack[i][1] += moved
	}
	return stack
}

// compares a pointer with the target, whose address is negative as all of a kernel.
func (c code) compares(_ uint64, i instruction) bool {
	return i.is(fmt.Sprintf("cmpq\t$-%#x, %%", -c.begin[target]))
}

// A kernel that is built from what perf recorded of another calls the usual target of an indirect call directly, or has it inlined,
// though it is in another file and the call goes through a thunk.
func TestCallTargetsFromPerf(t *testing.T) {
	p := open(t, "branches")
	p.must(making("tiny-branches", "--until", "plain")...)
	dir := p.step("tiny-branches", "plain").Dir
	manifest, err := build.ReadManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	plain := codeOf(t, dir)
	if found := plain.all(plain.compares); len(found) > 0 {
		t.Fatalf("the plain kernel compares with %s at %#x", target, found)
	}

	var data string
	var profiles [][]byte
	for _, moved := range []uint64{0x8000000, 0x1c000000} {
		data = perftest.Data(t, perftest.Recording{BuildID: manifest.BuildID, Stack: plain.stack(moved), Samples: 1000, Moved: moved})
		p.must(making("tiny-branches", "--from-perf", data, "--until", "profile")...)
		profiles = append(profiles, p.file("tiny-branches", "profile", "profile/"+autofdo.ProfileFile))
	}
	if !bytes.Equal(profiles[0], profiles[1]) {
		t.Fatalf("where the kernel lay is in its profile:\n%s\n%s", profiles[0], profiles[1])
	}

	p.must(making("tiny-branches", "--from-perf", data, "--until", "optimised")...)
	dir = p.step("tiny-branches", "optimised").Dir
	profile := read(t, filepath.Join(dir, autofdo.ProfileFile))
	named := regexp.MustCompile(`(?m)^ +[\d.]+: ` + inlined + `:\d+\n +[\d.]+: 1000 ` + target + `:1000$`)
	if !named.Match(profile) || bytes.Contains(profile, []byte("thunk")) || !bytes.Equal(profile, profiles[1]) {
		t.Errorf("the kernel has the profile\n%s\nand was given\n%s", profile, profiles[1])
	}
	optimised := codeOf(t, dir)
	jump := optimised.at[optimised.at[optimised.only("comparison with "+target, optimised.compares)].next]
	if !jump.is("jne") {
		t.Fatalf("behind the comparison with %s is %s", target, jump.text)
	}
	_, equal := optimised.way(jump.next, func(at uint64, i instruction) bool {
		return i.calls(optimised.begin[target]) || optimised.of(at, inlined) && optimised.of(at, target)
	})
	_, other := optimised.way(jump.to, func(at uint64, i instruction) bool {
		return i.calls(optimised.begin[thunk]) && optimised.of(at, inlined)
	})
	t.Logf("%s: %s; others: %s", target, optimised.at[equal].text, optimised.at[other].text)
}
