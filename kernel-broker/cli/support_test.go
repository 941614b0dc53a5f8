// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func unpacked(t *testing.T, path string) map[string]string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	plainly, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for archive := tar.NewReader(plainly); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimPrefix(header.Name, "kernel-broker-support/")] = string(text)
	}
}

// A bundle has what each command says, also that one failed, and is for its owner only.
func TestSupport(t *testing.T) {
	f := newFixture(t)
	f.nodes.list, f.jobs.list = someNodes(), someJobs()
	path := filepath.Join(t.TempDir(), "s.tar.gz")
	f.must(0, "look at it before you send it", "support", "--output-file", path)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	all := unpacked(t, path)
	for name, words := range map[string]string{
		"kernelctl/node-list.txt":         `"phase": "steady"`,
		"kernelctl/job-list-limit-50.txt": `"reference": "12_1"`,
		"kernelctl/health.txt":            "exit code 0",
		"kernelctl/doctor-all.txt":        "exit code",
		"files/proc/version":              "Linux",
	} {
		if !strings.Contains(all[name], words) {
			t.Errorf("%s: no %q in %q", name, words, all[name])
		}
	}
	elsewhere := filepath.Join(t.TempDir(), "s.tar.gz")
	if code, _, stderr := runAt(t, "unix:///nowhere", "support", "--output-file", elsewhere); code != 0 {
		t.Errorf("without a broker: exit %d, %s", code, stderr)
	}
	if all := unpacked(t, elsewhere); !strings.Contains(all["kernelctl/health.txt"], "cannot be reached") {
		t.Errorf("without a broker: %s", all["kernelctl/health.txt"])
	}
}

func TestWithoutSecrets(t *testing.T) {
	for text, want := range map[string]string{
		"etcd:\n  user: kb\n  password: hunter2\n":                              "etcd:\n  user: kb\n  password: [left out]\n",
		"  password_file: /etc/kb/pw":                                           "  password_file: [left out]",
		"broker: https://kb:hunter2@db:2379/x":                                  "broker: https://kb:[left out]@db:2379/x",
		"StoragePass=hunter2\nStorageUser=slurm":                                "StoragePass=[left out]\nStorageUser=slurm",
		"reset_command: ipmi -U admin -P hunter2 off":                           "reset_command: [left out]",
		"ProctrackType=x password=hunter2 y":                                    "ProctrackType=x password=[left out] y",
		`  "passed": 12, "mapping": 1`:                                          `  "passed": 12, "mapping": 1`,
		"cmdline quiet kernelbroker.token=ab12 ro":                              "cmdline quiet kernelbroker.token=[left out] ro",
		"\"token\": \"n1.abcdef\",":                                             "\"token\": [left out]",
		"-----BEGIN PRIVATE KEY-----\nMC4C\n-----END PRIVATE KEY-----\nafter\n": "[left out]\n[left out]\n[left out]\nafter\n",
		"reset_command:\n  - ipmi\n  - -P\n  - hunter2\nkept: 30 s\n":           "reset_command:[left out]\n[left out]\n[left out]\n[left out]\nkept: 30 s\n",
		"  token: |\n    ab\n\n    cd\n  other: x\n":                            "  token: [left out]\n[left out]\n\n[left out]\n  other: x\n",
		"NodeName=n[1-4] CPUs=4":                                                "NodeName=n[1-4] CPUs=4",
	} {
		if got := string(withoutSecrets([]byte(text))); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}
