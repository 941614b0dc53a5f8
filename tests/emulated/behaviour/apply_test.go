// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package behaviour

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
)

const goodProfile = `name: good
application: something
description: A profile that is right
default_version: 1
versions:
  - version: 1
    kernel: mitgcm
    arguments: [loglevel=3]
`

// Invalid profiles are refused with file, line and key, and nothing of their folder is registered.
func applyRefused(c *cluster) {
	before := c.must("alice", "kernelctl", "profile", "list", "--output", "json")
	edit := func(old, replacement string) string {
		text := strings.Replace(strings.ReplaceAll(goodProfile, "name: good", "name: bad"), old, replacement, 1)
		if old != "" && text == strings.ReplaceAll(goodProfile, "name: good", "name: bad") {
			c.t.Fatalf("%q is not in the profile", old)
		}
		return text
	}
	duplicate := edit("", "") + "  - version: 2\n    kernel: mitgcm\n    arguments: [loglevel=3]\n"
	for name, want := range map[string]struct {
		text  string
		words []string
	}{
		"unknown-key":   {edit("application:", "aplication:"), []string{"bad.yaml:2", `unknown key "aplication"`, `did you mean "application"?`}},
		"nested-key":    {edit("    kernel: mitgcm", "    kernel: mitgcm\n    initrd: x"), []string{"bad.yaml:8", `unknown key "initrd"`}},
		"twice-a-key":   {edit("name: bad", "name: bad\nname: worse"), []string{"bad.yaml", "name"}},
		"duplicate":     {duplicate, []string{"bad.yaml:10", "versions[1].kernel", "version 1 has the same kernel"}},
		"same-version":  {duplicate[:strings.LastIndex(duplicate, "  - version: 2")] + "  - version: 1\n    kernel: suite-stock\n", []string{"bad.yaml:9", "versions[1].version", "given twice"}},
		"no-default":    {edit("default_version: 1", "default_version: 4"), []string{"bad.yaml:4", "default_version", "does not exist"}},
		"name":          {edit("name: bad", "name: ../bad"), []string{"bad.yaml:1", "name"}},
		"argument":      {edit("loglevel=3", "root=/dev/sda"), []string{"bad.yaml", "arguments", "root"}},
		"kept-argument": {edit("loglevel=3", "rootwait"), []string{"bad.yaml", "arguments", "rootwait belongs to the node"}},
		"token":         {edit("loglevel=3", "kernelbroker.token=00000000000000000000000000000000"), []string{"bad.yaml", "arguments", "kernelbroker"}},
		"type":          {edit("version: 1", "version: one"), []string{"bad.yaml"}},
		"policy":        {goodProfileNamed("bad") + "fallback: stock\n", []string{"bad.yaml:9", "fallback", "hold"}},
		"no-yaml":       {"name: [", []string{"bad.yaml"}},
		"empty":         {"", []string{"bad.yaml", "empty"}},
		"no-such":       {edit("kernel: mitgcm", "kernel: mitgmc"), []string{"mitgmc", `did you mean "mitgcm"?`}},
		"architecture":  {goodProfileNamed("bad") + "requires:\n  architecture: riscv64\n", []string{"bad.yaml:10", "requires.architecture"}},
		"other-content": {strings.ReplaceAll(quietProfile, "loglevel=4", "loglevel=5"), []string{"quiet@2", "new version"}},
		"same-name":     {goodProfile, []string{"good", "already"}},
	} {
		argv := c.applyCommand(name, map[string]string{"bad.yaml": want.text, "a-good.yaml": goodProfile})
		if name == "other-content" { // only the broker knows what is registered
			if err := os.Remove(filepath.Join(c.catalogDir(), "suite", name, "a-good.yaml")); err != nil {
				c.t.Fatal(err)
			}
		}
		c.refused("root", want.words, argv...)
		if after := c.must("alice", "kernelctl", "profile", "list", "--output", "json"); after != before {
			c.t.Fatalf("%s: the catalog changed:\n%s", name, after)
		}
	}
	c.refused("alice", []string{"permission"}, c.applyCommand("mine", map[string]string{"good.yaml": goodProfile})...)
	if after := c.must("alice", "kernelctl", "profile", "list", "--output", "json"); after != before {
		c.t.Errorf("a user changed the catalog:\n%s", after)
	}
}

func goodProfileNamed(name string) string {
	return strings.Replace(goodProfile, "name: good", "name: "+name, 1)
}

// A profile that no node can run: its job is held with the reason, and the nodes are unchanged.
func noSuchNode(c *cluster) {
	c.apply("greedy", goodProfileNamed("greedy")+"requires:\n  memory_mib: 1000000\n")
	c.kernelWithout("driverless", "mitgcm", "virtio_net")
	c.apply("driverless", strings.Replace(goodProfileNamed("driverless"), "kernel: mitgcm", "kernel: driverless", 1))
	c.costs(0, c.heldForNodes)
}

func (c *cluster) heldForNodes() {
	c.t.Helper()
	jobs := map[string][]string{
		c.sbatch("alice", "-N1", "--kernel-profile=greedy"):     {"greedy@1", "1000000 MiB of memory"},
		c.sbatch("alice", "-N1", "--kernel-profile=driverless"): {"driverless@1", "virtio_net"},
	}
	plain := c.sbatch("bob", "-N2")
	for id, words := range jobs {
		c.wait(switchLimit, "job "+id+" to be held", func() bool {
			job := c.job(id)
			return held(job) && (strings.Contains(job["Reason"], "held_state") || job["Reason"] == "JobHeldUser")
		})
		text := c.job(id)["AdminComment"]
		for _, word := range append(words, "kernel-broker: ") {
			if !strings.Contains(text, word) {
				c.t.Errorf("job %s: %q is not in %q", id, word, text)
			}
		}
	}
	c.waitJob(plain, "COMPLETED")
	c.ranOn("bob", plain, "stock", 2)
	for id := range jobs {
		c.must("alice", "scancel", id)
		c.waitJob(id, "CANCELLED")
		c.neverRan("alice", id)
	}
}

// kernelWithout copies a kernel of the lab and removes a driver from its manifest. It registers nothing.
func (c *cluster) kernelWithout(name, from, driver string) {
	c.t.Helper()
	source, target := filepath.Join(c.catalogDir(), "kernels", from), filepath.Join(c.catalogDir(), "kernels", name)
	if err := os.MkdirAll(target, 0o755); err != nil {
		c.t.Fatal(err)
	}
	for _, file := range []string{"kernel.json", "bzImage"} {
		text, err := os.ReadFile(filepath.Join(source, file))
		if err != nil {
			c.t.Fatal(err)
		}
		if file == "kernel.json" {
			text = c.withoutDriver(text, name, driver)
		}
		if err := os.WriteFile(filepath.Join(target, file), text, 0o644); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *cluster) withoutDriver(text []byte, name, driver string) []byte {
	c.t.Helper()
	manifest := map[string]any{}
	if err := json.Unmarshal(text, &manifest); err != nil {
		c.t.Fatal(err)
	}
	manifest["name"] = name
	drivers, ok := manifest["drivers"].(map[string]any)
	list, ok2 := drivers["builtin"].([]any)
	if !ok || !ok2 {
		c.t.Fatalf("manifest without drivers: %s", text)
	}
	var left []any
	for _, one := range list {
		if one != driver {
			left = append(left, one)
		}
	}
	if len(left) == len(list) {
		c.t.Fatalf("%s is no driver of kernel %s: %v", driver, name, list)
	}
	drivers["builtin"] = left
	text, err := json.Marshal(manifest)
	if err != nil {
		c.t.Fatal(err)
	}
	return text
}
