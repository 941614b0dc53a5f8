// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"go/parser"
	"go/token"
	"path"
	"strconv"
	"strings"
	"testing"
)

// crossing lists, for each area of kernel-broker/, the other areas that it may
// use besides the domain. An area is a first-level folder: what stands in one
// is one thing, and its parts may use each other. Adapters, which do something
// to the world outside, do not know each other: only cmd/ puts them together.
// Foundations, in internal/, are for every area that is not pure.
var crossing = map[string]map[string]string{
	"agent": {
		"api":       "the agent speaks the API to the broker",
		"mtls":      "agent and broker prove who they are",
		"profiling": "what the collectors find on a node",
		"signing":   "the agent boots what its trust list allows",
	},
	"broker": {
		"catalog":   "the broker resolves what a job asks for",
		"limit":     "what one node may cause is counted where its word is taken in",
		"plan":      "the broker does what the plan decides",
		"profiling": "the broker knows which collectors there are",
		"store":     "every step is recorded before it is acted on",
	},
	"ca": {
		"mtls":  "the authority signs what both ends can read",
		"store": "tokens are used once, whatever dies in between",
	},
	"catalog": {
		"store": "the catalog is durable state",
	},
	"cli": {
		"profiling":  "kernelctl makes the reports of profiling runs",
		"api":        "kernelctl speaks the API",
		"audit":      "an administrator checks the audit log's files",
		"catalog":    "an administrator's files become requests",
		"factory":    "kernelctl is a front to the factory, which runs in its process",
		"client":     "kernelctl and the hooks reach the broker in one way",
		"policyfile": "an administrator checks a policy before it is in force",
		"signing":    "who registers a kernel signs it",
	},
	"client": {
		"credential": "a user's calls carry the proof of who makes them",
		"mtls":       "the broker is known by its certificate",
	},
	"factory": {
		"page": "a kernel's report is a page",
	},
	"guard": {
		"audit":      "every decision is recorded",
		"limit":      "what may be left out of the record is counted for each",
		"policy":     "the guard decides nothing itself",
		"policyfile": "the policy in force is read from a file",
	},
	"hook": {
		"api":    "the hooks speak the API",
		"client": "kernelctl and the hooks reach the broker in one way",
	},
	"people": {
		"limit": "what callers may have the host asked at a time is counted where it is asked",
	},
	"policyfile": {
		"policy": "the file becomes what the policy decides by",
	},
	"profiling": {
		"factory": "runs are compared by the factory's statistics",
		"page":    "a run's report is a page",
	},
	"rpc": {
		"api":        "the boundary where the domain becomes the API",
		"ca":         "whether a node's certificate is still good is asked at each handshake",
		"mtls":       "who calls over the network is found out by TLS",
		"broker":     "the server hands every call to the broker",
		"limit":      "what callers take is counted where the calls come in",
		"credential": "a call's proof is checked where the call comes in",
		"guard":      "every call is judged and recorded where it comes in",
		"plan":       "what nodes report becomes the plan's observations",
		"policy":     "every call is judged where it comes in",
	},
}

// pure lists the areas that may use nothing but the standard library, the
// domain, and what crossing allows.
var pure = map[string]bool{"": true, "plan": true, "policy": true, "page": true}

func TestImports(t *testing.T) {
	checked := 0
	for _, name := range files(t, ".go") {
		dir, inside := strings.CutPrefix(path.Dir(name), "kernel-broker")
		if !inside || strings.HasSuffix(name, "_test.go") {
			continue
		}
		checked++
		for _, target := range importsOf(t, name) {
			if why := refused(strings.TrimPrefix(dir, "/"), target); why != "" {
				t.Errorf("%s imports %s: %s", name, target, why)
			}
		}
	}
	if checked == 0 {
		t.Fatal("no Go file below kernel-broker/")
	}
}

func TestNobodyImportsTests(t *testing.T) {
	for _, name := range files(t, ".go") {
		if strings.HasPrefix(name, "tests/") {
			continue
		}
		for _, target := range importsOf(t, name) {
			if strings.HasPrefix(target, module+"/tests") {
				t.Errorf("%s imports %s: the product does not depend on its tests", name, target)
			}
		}
	}
}

func importsOf(t *testing.T, name string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, read(t, name), parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, spec := range file.Imports {
		target, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		targets = append(targets, target)
	}
	return targets
}

// refused says why the package in kernel-broker/dir may not import target.
func refused(dir, target string) string {
	area, part, _ := strings.Cut(dir, "/")
	if area == "cmd" {
		return ""
	}
	inside, ours := strings.CutPrefix(target, module+"/kernel-broker")
	if !ours {
		if pure[area] && strings.Contains(strings.Split(target, "/")[0], ".") {
			return "only the standard library here"
		}
		return ""
	}
	to, toPart, _ := strings.Cut(strings.TrimPrefix(inside, "/"), "/")
	switch {
	case to == "":
		return "" // the domain
	case to == "internal" && !pure[area]:
		return "" // foundations
	case to == "cmd":
		return "cmd/ composes and is not composed"
	case to == area && area == "store" && part != "" && toPart != "":
		return "stores stand behind the interface, side by side"
	case to == area:
		return ""
	case crossing[area][to] == "":
		return "not in this test's table; adapters do not know each other, only cmd/ composes"
	}
	return ""
}
