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
var crossing = map[string]map[string]string{
	"agent": {
		"api": "the agent speaks the API to the broker",
	},
	"broker": {
		"catalog": "the broker resolves what a job asks for",
		"plan":    "the broker does what the plan decides",
		"store":   "every step is recorded before it is acted on",
	},
	"catalog": {
		"store": "the catalog is durable state",
	},
	"cli": {
		"api":     "kernelctl speaks the API",
		"catalog": "an administrator's files become requests",
		"factory": "kernelctl is a front to the factory, which runs in its process",
		"client":  "kernelctl and the hooks reach the broker in one way",
	},
	"factory": {
		"page": "a kernel's report is a page",
	},
	"hook": {
		"api":      "the hooks speak the API",
		"client":   "kernelctl and the hooks reach the broker in one way",
		"hostlist": "Slurm hands nodes to its hooks as lists",
	},
	"rpc": {
		"api":    "the boundary where the domain becomes the API",
		"broker": "the server hands every call to the broker",
		"plan":   "what nodes report becomes the plan's observations",
	},
	"slurm": {
		"hostlist": "Slurm writes nodes as lists",
	},
}

// pure lists the areas that may use nothing but the standard library, the
// domain, and what crossing allows.
var pure = map[string]bool{"": true, "plan": true, "hostlist": true, "page": true}

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

func TestRefused(t *testing.T) {
	ours := module + "/kernel-broker"
	cases := []struct {
		dir, target string
		ok          bool
	}{
		{"", "time", true},
		{"", "go.yaml.in/yaml/v3", false},
		{"", ours + "/plan", false},
		{"plan", ours, true},
		{"plan", ours + "/store", false},
		{"plan", "google.golang.org/grpc", false},
		{"slurm", "google.golang.org/grpc", true},
		{"slurm", ours + "/rpc", false},
		{"agent/link", ours + "/agent/decide", true},
		{"agent/link", ours + "/broker", false},
		{"store/etcdstore", ours + "/store", true},
		{"store/etcdstore", ours + "/store/memstore", false},
		{"cli", ours + "/cmd/kernelctl", false},
		{"cmd/kernelctl", ours + "/cli", true},
		{"cmd/kernel-broker", ours + "/store/etcdstore", true},
	}
	for _, c := range cases {
		if got := refused(c.dir, c.target); (got == "") != c.ok {
			t.Errorf("kernel-broker/%s importing %s: got %q, want allowed %v", c.dir, c.target, got, c.ok)
		}
	}
}
