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

// crossing lists, for each room of kernel-broker/, the other rooms that it may
// use besides the domain. A room is a folder of the first level, or of the
// second in the folders that split names; its parts may use each other.
// Adapters, which act on the world outside, do not know each other: only cmd/
// composes. Foundations, in internal/, are for every room that is not pure.
var crossing = map[string]map[string]string{
	"agent": {
		"api":          "the agent speaks the API to the broker",
		"api/convert":  "the domain is sent and received in one form",
		"auth/mtls":    "agent and broker prove their identity",
		"auth/signing": "the agent boots what its trust list allows",
		"profiling":    "the collectors' results on a node",
	},
	"api/convert": {
		"api": "the only mapping between the API and the domain",
	},
	"api/client": {
		"auth/credential": "a user's calls carry a proof of identity",
		"auth/mtls":       "the broker is known by its certificate",
	},
	"auth/authz": {
		"auth/audit": "every decision is recorded",
	},
	"auth/munge": {
		"auth/credential": "munged judges the credentials of calls",
	},
	"auth/pki": {
		"auth/mtls":    "the authority signs what both ends can read",
		"broker/store": "a token is used once, whatever dies in between",
	},
	"broker/catalog": {
		"broker/history": "a change of a profile and its events are one commit",
		"broker/store":   "the catalog is durable state",
	},
	"broker/controller": {
		"broker/catalog": "the controller resolves what a job asks for",
		"broker/explain": "the controller has the facts of what a job waits for",
		"broker/history": "a change of a record and its events are one commit",
		"broker/plan":    "the controller does what the plan decides",
		"broker/record":  "records are read, found and forgotten in one way",
		"broker/store":   "every step is recorded before it is acted on",
		"broker/turns":   "jobs wait for their turn where a site bounds switches",
		"profiling":      "the controller knows which collectors exist",
	},
	"broker/history": {
		"broker/store": "events are durable state",
	},
	"broker/plan": {
		"broker/observe": "the plan reads Slurm's side of a node as a model",
	},
	"broker/record": {
		"broker/store": "records are durable state",
	},
	"broker/server": {
		"api":               "the boundary where the domain becomes the API",
		"api/convert":       "the boundary where the domain becomes the API",
		"auth/authz":        "every call is authorized where it comes in",
		"auth/credential":   "a call's proof is checked where it comes in",
		"auth/mtls":         "TLS tells who calls over the network",
		"auth/pki":          "each handshake asks whether a node's certificate is still good",
		"broker/controller": "the server hands every call to the controller",
		"broker/explain":    "an answer becomes a message",
		"broker/history":    "the server selects events",
	},
	"cli": {
		"agent":          "kernelctl doctor reads a node's configuration, and asks its agent",
		"api":            "kernelctl speaks the API",
		"api/client":     "kernelctl and the hooks reach the broker in one way",
		"api/convert":    "kernelctl reads and makes what is the domain's",
		"auth/audit":     "an administrator checks the audit log's files",
		"auth/authz":     "an administrator checks a policy before it is in force",
		"auth/mtls":      "kernelctl doctor reads when certificates end",
		"auth/nss":       "an administrator checks whom a policy names",
		"auth/signing":   "whoever registers a kernel signs it",
		"broker/catalog": "an administrator's files become requests",
		"doctor":         "kernelctl collects the facts about a site, and shows what is wrong with it",
		"factory":        "kernelctl is a front to the factory, which runs in its process",
		"profiling":      "kernelctl compares profiling runs",
		"report":         "kernelctl writes reports",
		"web":            "kernelctl serves its user's page",
	},
	"doctor": {
		"internal": "a finding about many nodes names them in Slurm's notation",
	},
	"factory": {
		"profiling": "a kernel is built from profiling runs",
		"report":    "a pipeline ends with its kernel's report",
	},
	"hook": {
		"api":         "the hooks speak the API",
		"api/client":  "kernelctl and the hooks reach the broker in one way",
		"api/convert": "a phase has one word for users",
		"auth/munge":  "the hooks of a backup controller prove who calls",
	},
	"report": {
		"factory":   "a kernel's report shows what the factory made and measured",
		"internal":  "figures are summarised by one statistics package",
		"profiling": "a run's report shows what the collectors found",
	},
	"web": {
		"api":         "the page shows what the broker answers",
		"api/convert": "the page has the words that users read",
		"factory":     "the page shows the builds of this host",
		"report":      "the page shows reports",
	},
}

// split names the folders whose parts are rooms of their own.
var split = map[string]bool{"api": true, "auth": true, "broker": true}

// pure lists the rooms that may use nothing but the standard library, the
// domain, and what crossing allows.
var pure = map[string]bool{"": true, "broker/explain": true, "broker/observe": true, "broker/plan": true, "broker/turns": true, "doctor": true, "report": true}

// room tells the room of a folder below kernel-broker/, and the part in it.
func room(dir string) (name, part string) {
	name, part, _ = strings.Cut(dir, "/")
	if !split[name] || part == "" || part == "v1" {
		return name, part
	}
	second, part, _ := strings.Cut(part, "/")
	return name + "/" + second, part
}

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
			support := strings.HasSuffix(name, "_test.go") && strings.HasPrefix(target, module+"/tests/support/")
			if strings.HasPrefix(target, module+"/tests") && !support {
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
	area, part := room(dir)
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
	to, toPart := room(strings.TrimPrefix(inside, "/"))
	switch {
	case to == "":
		return "" // the domain
	case to == "internal" && !pure[area]:
		return "" // foundations
	case to == "cmd":
		return "cmd/ composes and is not composed"
	case to == area && area == "broker/store" && part != "" && toPart != "":
		return "stores stand behind the interface, side by side"
	case to == area:
		return ""
	case crossing[area][to] == "":
		return "not in this test's table; adapters do not know each other, only cmd/ composes"
	}
	return ""
}
