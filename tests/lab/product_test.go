// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestAgentConfigOverrides(t *testing.T) {
	o := Options{Agent: map[string]any{
		"cache":  map[string]any{"dir": "/x"},
		"kexec":  map[string]any{"load_args": []string{"-i"}},
		"broker": nil,
		"extra":  true,
	}}
	text, err := ConfigFile(agentConfig(o, 2))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := yaml.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"node":  "n2",
		"cache": map[string]any{"dir": "/x", "max_bytes": 268435456},
		"kexec": map[string]any{"load_args": []any{"-i"}},
		"extra": true,
	}
	for k, v := range want {
		if !reflect.DeepEqual(got[k], v) {
			t.Errorf("%s: %v, want %v", k, got[k], v)
		}
	}
	if _, there := got["broker"]; there {
		t.Error("broker was deleted and is there")
	}
	if strings.Contains(string(text), "e+") {
		t.Errorf("a size in scientific notation:\n%s", text)
	}
}

func TestConfigsAreNotShared(t *testing.T) {
	over := Options{Broker: map[string]any{"listen": "x"}}
	brokerConfig(over, ModeRoot)
	if brokerConfig(Options{}, ModeRoot)["listen"] == "x" {
		t.Error("an override of one lab is in another")
	}
}

func TestFindProductListsMissingFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	agent := filepath.Join(dir, "bin", "kernel-broker-agent")
	if err := os.WriteFile(agent, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := findProduct(Options{Product: dir, Repo: dir}, "", nodeFiles)
	if err == nil || !strings.Contains(err.Error(), "kernel_profile.so") || strings.Contains(err.Error(), "broker-agent,") {
		t.Errorf("error %v; want one that names kernel_profile.so and not the agent", err)
	}
}
