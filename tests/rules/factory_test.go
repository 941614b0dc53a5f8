// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/site"
)

// The role installs what the package recommends, since the role package leaves recommendations out, and the compiler of the
// catalog's recipes.
func TestFactoryHasWhatBuildsNeed(t *testing.T) {
	var role struct {
		Packages []string `yaml:"factory_packages"`
	}
	var factory struct {
		Overrides struct {
			Deb struct{ Recommends []string }
		}
	}
	for path, into := range map[string]any{"ansible/roles/factory/defaults/main.yml": &role, "packaging/factory.yaml": &factory} {
		if err := yaml.Unmarshal(read(t, path), into); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	if len(factory.Overrides.Deb.Recommends) == 0 {
		t.Fatal("the package recommends nothing")
	}
	for _, name := range append(factory.Overrides.Deb.Recommends, "gcc-12", "libc6-dev") {
		if !slices.Contains(role.Packages, name) {
			t.Errorf("factory_packages has no %s", name)
		}
	}
}

// The role accepts what the factory accepts in factory.yaml.
func TestFactoryConfigIsChecked(t *testing.T) {
	var role struct {
		Mitigations []site.Mitigations `yaml:"factory_mitigations"`
		Losses      []site.Loss        `yaml:"factory_losses"`
	}
	if err := yaml.Unmarshal(read(t, "ansible/roles/factory/vars/main.yml"), &role); err != nil {
		t.Fatal(err)
	}
	if want := []site.Mitigations{site.Stock, site.Any}; !slices.Equal(role.Mitigations, want) {
		t.Errorf("factory_mitigations is %v, want %v", role.Mitigations, want)
	}
	if !slices.Equal(role.Losses, site.Losses) {
		t.Errorf("factory_losses is %v, want %v", role.Losses, site.Losses)
	}
	keys := reflect.TypeFor[site.Site]()
	tasks := string(read(t, "ansible/roles/factory/tasks/main.yml"))
	list := regexp.MustCompile(`difference\(\[([^]]*)\]\)`).FindStringSubmatch(tasks)
	var names []string
	for i := range keys.NumField() {
		names = append(names, "'"+keys.Field(i).Tag.Get("yaml")+"'")
	}
	if list == nil || list[1] != strings.Join(names, ", ") {
		t.Errorf("the role has the keys %v, the factory %v", list, names)
	}
}

// What the role writes the factory reads; a mistake stops the role before it installs anything, and a controller's client.yaml stays.
func TestFactoryRole(t *testing.T) {
	p := newPlaybooks(t)
	p.write("ansible/roles/package/tasks/main.yml", "- ansible.builtin.debug: {msg: 'package {{ package_names }}'}\n", 0o644)
	p.role("client", "- ansible.builtin.debug: {msg: 'client'}\n")
	p.edit("roles/factory", "/etc/kernel-broker", p.dir, "owner: root", fmt.Sprintf("owner: %q", fmt.Sprint(os.Getuid())),
		"group: root", fmt.Sprintf("group: %q", fmt.Sprint(os.Getgid())))
	p.module("apt", `cat "$1" >>"$state/log"; echo '{"changed": false}'`)
	p.write("state/log", "", 0o644)
	p.write("ansible/factory.yml", "- {hosts: n1, gather_facts: false, roles: [factory]}\n", 0o644)
	p.write("ansible/controller.yml", "- {hosts: ctl1, gather_facts: false, roles: [factory]}\n", 0o644)
	for _, config := range []string{"{mitigation: any}", "{mitigations: none}", "{may_give_up: [speed]}", "{may_give_up: security}"} {
		p.fails("factory_config may have mitigations (stock or any)", "factory.yml", "-e", "{factory_config: "+config+"}")
	}
	if log := p.read("state/log"); log != "" {
		t.Errorf("a mistake installs\n%s", log)
	}
	args := []string{"-e", "{factory_config: {mitigations: any, may_give_up: [diagnosis, hardware]}, factory_more_packages: [dwarves]}"}
	if out := p.run("factory.yml", args...); !strings.Contains(out, `"client"`) || !strings.Contains(out, "package ['kernel-broker-client', 'kernel-factory']") {
		t.Errorf("the run is\n%s", out)
	}
	if log := p.read("state/log"); !strings.Contains(log, "linux-source") || !strings.Contains(log, "dwarves") {
		t.Errorf("apt is asked for\n%s", log)
	}
	s, err := site.Load(p.dir + "/factory.yaml")
	if err != nil || s.Mitigations != site.Any || !slices.Equal(s.MayGiveUp, []site.Loss{site.Diagnosis, site.Hardware}) {
		t.Errorf("the factory reads %v, %v", s, err)
	}
	if out := p.run("factory.yml", append(args, "--check")...); changes(out) != "" {
		t.Errorf("check mode would change\n%s", changes(out))
	}
	if out := p.run("factory.yml", "-e", "factory_publish=false"); strings.Contains(out, `"client"`) {
		t.Errorf("without a broker\n%s", out)
	}
	if out := p.run("controller.yml"); strings.Contains(out, `"client"`) {
		t.Errorf("the broker's client.yaml is replaced\n%s", out)
	}
	if s, err = site.Load(p.dir + "/factory.yaml"); err != nil || s.Mitigations != site.Stock {
		t.Errorf("the factory reads %v, %v", s, err)
	}
}
