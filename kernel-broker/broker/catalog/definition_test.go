// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

const mitgcmYAML = `name: mitgcm
application: MITgcm
description: >
  Slim kernel for
  the MITgcm ocean model
default_version: 2
reuse: never
boot_timeout: 90s
requires:
  memory_mib: 256
versions:
  - version: 2
    kernel: mitgcm
    arguments: [quiet]
  - version: 1
    kernel: mitgcm
`

func put(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "mitgcm.yaml"), mitgcmYAML)
	put(t, filepath.Join(dir, "README.md"), "no profile")
	put(t, filepath.Join(dir, "a.yaml"), strings.Replace(mitgcmYAML, "name: mitgcm", "name: a", 1))
	definitions, err := Load(dir)
	if err != nil || len(definitions) != 2 || definitions[0].Name != "a" {
		t.Fatalf("Load = %+v, %v", definitions, err)
	}
	d := definitions[1]
	if d.Description != "Slim kernel for the MITgcm ocean model" || d.DefaultVersion != 2 ||
		d.Reuse != kb.ReuseNever || d.Fallback != kb.FallbackHold || d.BootAttempts != 2 ||
		d.BootTimeout != 90*time.Second || d.Requires.MemoryMiB != 256 || len(d.Versions) != 2 ||
		d.Versions[0].Version != 1 || d.Versions[1].Arguments[0] != "quiet" {
		t.Errorf("mitgcm = %+v", d)
	}
}

func TestLoadReportsEveryFile(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "one.yaml"), mitgcmYAML)
	put(t, filepath.Join(dir, "two.yaml"), mitgcmYAML)
	put(t, filepath.Join(dir, "three.yaml"), "names: x\n")
	put(t, filepath.Join(dir, "four.yml"), mitgcmYAML)
	_, err := Load(dir)
	for _, words := range []string{
		`two.yaml: profile "mitgcm" is already defined in ` + dir + "/one.yaml",
		`three.yaml:1: unknown key "names"; did you mean "name"?`, "four.yml: profiles end in .yaml",
	} {
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("Load does not say %q: %v", words, err)
		}
	}
	if _, err := Load(filepath.Join(dir, "nowhere")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Load of nothing = %v", err)
	}
}

func TestParseProfileRefuses(t *testing.T) {
	swap := func(old, new string) string {
		t.Helper()
		if !strings.Contains(mitgcmYAML, old) {
			t.Fatalf("%q is not in the sample", old)
		}
		return strings.Replace(mitgcmYAML, old, new, 1)
	}
	for text, words := range map[string]string{
		"":                                    "p.yaml: is empty",
		"- a\n- b\n":                          "p.yaml:1: cannot unmarshal",
		mitgcmYAML + "---\nname: b\n":         "more than one document",
		swap("name: mitgcm", "name: MITgcm"):  `p.yaml:1: name: profile name "MITgcm"`,
		swap("reuse: never", "reuse: always"): `p.yaml:7: reuse: "always" is not one of same-profile, never`,
		swap("reuse: never", "reuse: never\nname: b"):                                "p.yaml:8: mapping key \"name\" already defined at line 1",
		swap("reuse: never", "reusw: never"):                                         `p.yaml:7: unknown key "reusw"; did you mean "reuse"?`,
		swap("reuse: never", "zzzzzzz: 1"):                                           `p.yaml:7: unknown key "zzzzzzz": invalid`,
		swap("reuse: never", "fallback: other"):                                      `p.yaml:7: fallback: "other"`,
		swap("reuse: never", "boot_attempts: 9"):                                     "p.yaml:7: boot_attempts: 9 is not within 1 to 5",
		swap("90s", "1s"):                                                            "p.yaml:8: boot_timeout: 1s is not within",
		swap("90s", "soon"):                                                          "p.yaml:8: boot_timeout:",
		swap("  memory_mib: 256", "  memory_mib: -1"):                                "p.yaml:10: cannot unmarshal",
		swap("  memory_mib: 256", "  architecture: arm64"):                           "p.yaml:10: requires.architecture:",
		swap("default_version: 2", "default_version: 7"):                             "p.yaml:6: default_version: version 7 does not exist",
		swap("    kernel: mitgcm\n    arguments: [quiet]", "    kernel: mitgcm"):     "p.yaml:15: versions[1].kernel: version 2 has the same kernel",
		swap("  - version: 1", "  - version: 2"):                                     "p.yaml:15: versions[1].version: version 2 is given twice",
		swap("  - version: 1", "  - version: 0"):                                     "p.yaml:15: versions[1].version: 0 is not within",
		swap("[quiet]", "[root=/dev/sda]"):                                           "p.yaml:14: versions[0].arguments: kernel argument \"root=/dev/sda\"",
		swap("kernel: mitgcm", "kernel: ../x"):                                       "p.yaml:13: versions[0].kernel:",
		swap("[quiet]", "[quiet]\n    cores: {}"):                                    "p.yaml:15: versions[0].cores: 0 system cores are not within 1 to 1024",
		swap("[quiet]", "[quiet]\n    cores: {system: 1, application: 3}"):           `unknown key "application"`,
		swap("[quiet]", "[nohz_full=1]\n    cores: {system: 1}"):                     "p.yaml:15: versions[0].cores: kernel argument \"nohz_full=1\": system cores are set",
		"name: stock\nversions: [{version: 1, kernel: stock, cores: {system: 1}}]\n": "versions[0].cores: system cores: every node returns to stock",
		"name: a\n":            "p.yaml:1: versions: at least one is required",
		"name: a\nversions:\n": "p.yaml:1: application: is missing",
		"a: *b\n":              "p.yaml: unknown anchor",
	} {
		_, err := ParseProfile("p.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("want %q, got %v, for\n%s", words, err, text)
		}
	}
}

func FuzzParseProfile(f *testing.F) {
	f.Add([]byte(mitgcmYAML))
	f.Add([]byte("name: [\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := ParseProfile("p.yaml", text)
		if err != nil {
			return
		}
		if err := kb.ValidateProfileName(d.Name); err != nil || len(d.Versions) == 0 {
			t.Errorf("accepted %+v", d)
		}
	})
}

// build makes the folder of a kernel as the factory leaves it.
func build(t *testing.T, dir, name string, change func(map[string]any)) {
	t.Helper()
	image := put(t, filepath.Join(dir, name, "bzImage"), "image of "+name)
	a, err := DescribeFile(image, MaxImage)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]any{
		"format": 1, "name": name, "release": "6.1.0-" + name, "build_id": strings.Repeat("ab", 20), "architecture": "x86_64",
		"image":       map[string]any{"name": "bzImage", "digest": a.Digest, "size": a.Size},
		"config":      map[string]any{"name": "config"},
		"drivers":     map[string]any{"builtin": []string{"virtio_net", "ext4"}, "modular": []string{"e1000"}},
		"filesystems": map[string]any{"builtin": []string{"ext4", "tmpfs"}, "modular": []string{}},
	}
	if change != nil {
		change(m)
	}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, name, "kernel.json"), string(text))
}

func mustParse(t *testing.T, text string) ProfileDefinition {
	t.Helper()
	d, err := ParseProfile("p.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestResolve(t *testing.T) {
	dir := t.TempDir()
	build(t, dir, "mitgcm", nil)
	p, artifacts, err := Resolve(mustParse(t, mitgcmYAML), dir)
	if err != nil || len(p.Versions) != 2 || len(artifacts) != 2 || p.Versions[1].Documents[0].Digest != artifacts[1].Digest {
		t.Fatalf("Resolve = %+v, %v, %v", p, artifacts, err)
	}
	k := p.Versions[1].Kernel
	if k.Ref().String() != "mitgcm@2" || k.Release != "6.1.0-mitgcm" || k.MinMemoryMiB != 256 || k.ImageDigest != artifacts[0].Digest ||
		k.ImageSize != artifacts[0].Size || strings.Join(k.Drivers, " ") != "ext4 tmpfs virtio_net" {
		t.Errorf("kernel = %+v", k)
	}
}

// The same kernel with other system cores is another version.
func TestResolveSystemCores(t *testing.T) {
	dir := t.TempDir()
	build(t, dir, "mitgcm", nil)
	text := strings.Replace(mitgcmYAML, "    arguments: [quiet]", "    cores: {system: 2}", 1)
	p, _, err := Resolve(mustParse(t, text), dir)
	if err != nil || p.Versions[0].Kernel.SystemCores != 0 || p.Versions[1].Kernel.SystemCores != 2 {
		t.Errorf("Resolve = %+v, %v", p, err)
	}
}

func TestModulesCountInInitrdOrOnNode(t *testing.T) {
	dir := t.TempDir()
	build(t, dir, "mitgcm", func(m map[string]any) {
		initrd, err := DescribeFile(put(t, filepath.Join(dir, "mitgcm", "initrd.img"), "initrd"), MaxInitrd)
		if err != nil {
			t.Fatal(err)
		}
		m["initrd"] = map[string]any{"name": "initrd.img", "digest": initrd.Digest, "size": initrd.Size}
	})
	build(t, dir, "stock", nil)
	for name, files := range map[string]int{"mitgcm": 3, "stock": 2} {
		text := strings.ReplaceAll(strings.ReplaceAll(mitgcmYAML, "name: mitgcm", "name: "+name), "kernel: mitgcm", "kernel: "+name)
		p, artifacts, err := Resolve(mustParse(t, text), dir)
		if err != nil || len(artifacts) != files {
			t.Fatalf("%s: %v, %v", name, artifacts, err)
		}
		if drivers := strings.Join(p.Versions[0].Kernel.Drivers, " "); drivers != "e1000 ext4 tmpfs virtio_net" {
			t.Errorf("%s: drivers %s", name, drivers)
		}
	}
}

func TestResolveRefuses(t *testing.T) {
	for words, change := range map[string]func(m map[string]any){
		"format: 2":               func(m map[string]any) { m["format"] = 2 },
		`holds kernel "other"`:    func(m map[string]any) { m["name"] = "other" },
		"is not the image of the": func(m map[string]any) { m["image"].(map[string]any)["digest"] = "sha256:" + strings.Repeat("0", 64) },
		"not a file beside":       func(m map[string]any) { m["image"].(map[string]any)["name"] = "../bzImage" },
		"no such file":            func(m map[string]any) { m["image"].(map[string]any)["name"] = "vmlinux" },
		"image.digest":            func(m map[string]any) { m["image"].(map[string]any)["digest"] = "x" },
		"build id":                func(m map[string]any) { m["build_id"] = "" },
		"architecture":            func(m map[string]any) { m["architecture"] = "aarch64" },
	} {
		dir := t.TempDir()
		build(t, dir, "mitgcm", change)
		if _, _, err := Resolve(mustParse(t, mitgcmYAML), dir); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("want %q, got %v", words, err)
		}
	}
	dir := t.TempDir()
	build(t, dir, "mitgcn", nil)
	_, _, err := Resolve(mustParse(t, mitgcmYAML), dir)
	if !errors.Is(err, kb.ErrNotFound) || !strings.Contains(err.Error(), `kernel "mitgcm" is not built: not found; did you mean "mitgcn"?`) {
		t.Errorf("not built: %v", err)
	}
}

func FuzzParseManifest(f *testing.F) {
	f.Add([]byte(`{"format":1,"image":{"name":"bzImage","digest":"sha256:` + strings.Repeat("0", 64) + `"}}`))
	f.Add([]byte(`{"format":1,"image":{"name":"/etc/passwd"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := parseManifest(text)
		if err == nil && filepath.Base(m.Image.Name) != m.Image.Name {
			t.Errorf("accepted an image at %q", m.Image.Name)
		}
	})
}

// The profiles that ship are read as they are.
func TestShippedProfiles(t *testing.T) {
	definitions, err := Load(filepath.Join("..", "..", "..", "catalog", "profiles"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range definitions {
		names = append(names, d.Name)
	}
	if !slices.Contains(names, kb.StockProfile) || !slices.Contains(names, "mitgcm") {
		t.Errorf("profiles %v, at least stock and mitgcm are needed", names)
	}
}
