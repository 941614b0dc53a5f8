// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// The sample contains all defaults.
func TestSampleIsTheDefaults(t *testing.T) {
	text, err := os.ReadFile("client.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := ParseConfig("client.yaml", text)
	if err != nil || c != DefaultConfig() {
		t.Errorf("the sample is %+v, %v\nthe defaults %+v", c, err, DefaultConfig())
	}
	keys := map[string]any{}
	if err := yaml.Unmarshal(text, &keys); err != nil {
		t.Fatal(err)
	}
	all, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if want := bytes.Count(all, []byte("\n")); len(keys) != want {
		t.Errorf("the sample documents %d of %d keys", len(keys), want)
	}
}

func TestParseConfig(t *testing.T) {
	c, err := ParseConfig("c", []byte("broker: /tmp/b.sock\nbroker_wait: 2s\nprolog_limit: 1m\nhold_after: 1\nprofiling_wait: 30s\n"))
	if err != nil || c.Broker != "/tmp/b.sock" || c.BrokerWait != 2*time.Second || c.PrologLimit != time.Minute || c.HoldAfter != 1 || c.ProfilingWait != 30*time.Second ||
		c.Scontrol != "/usr/bin/scontrol" {
		t.Errorf("ParseConfig = %+v, %v", c, err)
	}
	if c, err := ParseConfig("c", nil); err != nil || c != DefaultConfig() {
		t.Errorf("an empty file is %+v, %v", c, err)
	}
}

func TestParseConfigRefuses(t *testing.T) {
	for text, words := range map[string]string{
		"\xff\xfe#\x00":                        "c: not UTF-8",
		"brokr: x\n":                           `c: line 1: unknown key "brokr"`,
		"a: 1\nb: 2\n":                         `unknown key "b"`,
		"broker: nonsense\n":                   "c: broker: address \"nonsense\"",
		"broker: unix:relative\n":              "not absolute",
		"scontrol: scontrol\n":                 "scontrol: \"scontrol\" is not an absolute path",
		"slurm_conf: slurm.conf\n":             "slurm_conf",
		"broker_wait: soon\n":                  "line 1: ",
		"broker_wait: 701s\n":                  "not within 0s and prolog_limit",
		"prolog_limit: 1ms\nbroker_wait: 0s\n": "prolog_limit",
		"profiling_wait: 11m\n":                "not within 1s to 10m0s",
		"profiling_wait: 0s\n":                 "profiling_wait",
		"hold_after: 0\n":                      "hold_after: 0",
		"hold_after: [\n":                      "c: ",
		"broker: /b.sock\n---\nca: /x\n":       "c: more than one document",
	} {
		_, err := ParseConfig("c", []byte(text))
		if !errors.Is(err, kb.ErrInvalid) || !strings.Contains(err.Error(), words) {
			t.Errorf("%q: %v, want %q", text, err, words)
		}
	}
}

func TestLoadConfigWithoutAFile(t *testing.T) {
	if _, err := LoadConfig(filepath.Join(t.TempDir(), "client.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a named file that is missing: %v", err)
	}
}

func TestTarget(t *testing.T) {
	for address, want := range map[string]string{
		"unix:///run/b.sock": "unix:///run/b.sock", "unix:/run/b.sock": "unix:///run/b.sock", "/run/b.sock": "unix:///run/b.sock",
		"ctl:7440": "dns:///ctl:7440", "[::1]:7440": "dns:///[::1]:7440",
		"": "", "ctl": "", ":7440": "", "ctl:": "", "unix:": "", "unix:b.sock": "",
	} {
		got, err := canonical(address)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("canonical(%q) = %q, %v, want %q", address, got, err, want)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte("broker: /tmp/b.sock\n"))
	f.Add([]byte("hold_after: 1e3\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := ParseConfig("c", text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "c: ") {
				t.Errorf("%v does not name the file", err)
			}
			return
		}
		if c.validate() != nil {
			t.Errorf("accepted %+v", c)
		}
		if more, err := ParseConfig("c", append(bytes.Clone(text), "\n---\nno-such-key: 1\n"...)); err == nil {
			t.Errorf("content after %q is ignored: %+v", text, more)
		}
	})
}
