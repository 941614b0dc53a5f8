// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/support/etcdtest"
)

func TestEtcdConfigurations(t *testing.T) {
	for text, words := range map[string]string{
		"{endpoints: ['https://e1:2379', 'https://[fd00::1]:2379'], ca: /ca.pem, certificate: /c.pem, key: /k.pem}": "",
		"{endpoints: ['https://e1:2379/']}":                            "",
		"{endpoints: ['http://e1:2379'], prefix: sites/hpc}":           "",
		"{endpoints: ['unix:///run/etcd.sock']}":                       "",
		"{endpoints: ['http://e1:2379'], user: kb, password_file: /p}": "",
		"{ca: /ca.pem, certificate: /c.pem, key: /k.pem}":              "", // for the move to come
		"{certificate: /c.pem}":                                        "etcd.certificate and etcd.key belong together",
		"{key: /k.pem}":                                                "etcd.certificate and etcd.key belong together",
		"{user: kb}":                                                   "etcd.user and etcd.password_file belong together",
		"{password_file: /p}":                                          "etcd.user and etcd.password_file belong together",
		"{user: kb, password_file: p}":                                 `etcd.password_file: "p" is not an absolute path`,
		"{endpoints: [e1]}":                                            `etcd.endpoints: "e1" is none of https://HOST:PORT`,
		"{endpoints: ['e1:2379']}":                                     `"e1:2379" is none of`,
		"{endpoints: ['https://e1']}":                                  `"https://e1" is not https://HOST:PORT; etcd's own port is 2379`,
		"{endpoints: ['https://kb:secret@e1:2379']}":                   "is not https://HOST:PORT",
		"{endpoints: ['https://e1:2379/v3']}":                          "is not https://HOST:PORT",
		"{endpoints: ['https://:2379']}":                               "is not https://HOST:PORT",
		"{endpoints: ['https://e1:port']}":                             "etcd.endpoints",
		"{endpoints: ['unix://socket']}":                               `"unix://socket" is none of`,
		"{endpoints: ['https://e1:2379', 'http://e2:2379']}":           "all have to begin with the same of https:// and http://",
		"{endpoints: ['http://e1:2379'], ca: /ca.pem}":                 "does not begin with https://",
		"{prefix: /kernel-broker/}":                                    `etcd.prefix: prefix "/kernel-broker/"`,
		"{prefix: 'a b'}":                                              "etcd.prefix",
		"{quota_bytes: 1}":                                             "etcd.quota_bytes: 1 is not within",
		"{password: secret}":                                           `unknown key "password"`,
	} {
		_, err := load(write(t, "etcd: "+text))
		if words == "" && err != nil || words != "" && (err == nil || !strings.Contains(err.Error(), words)) {
			t.Errorf("%s: %v, want %q", text, err, words)
		}
	}
	if _, err := run1(t, "--config", write(t, "etcd: {ca: /ca.pem}"), "--etcd-endpoints", "http://e1:2379", "--check"); err == nil || !strings.Contains(err.Error(), "https://") {
		t.Errorf("endpoints of the command line are not checked: %v", err)
	}
}

// What etcd needs of files is looked at before etcd is, and each time again. Nobody else may read what is secret.
func TestFilesForEtcd(t *testing.T) {
	dir := t.TempDir()
	authority := etcdtest.NewAuthority(t)
	certificate, key := authority.Issue(t, dir, "kb")
	_, another := authority.Issue(t, dir, "another")
	over, overKey := authority.IssueUntil(t, time.Now().Add(-time.Hour), dir, "over")
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := func() etcdConfig {
		return etcdConfig{Endpoints: []string{"https://e1:2379"}, CA: authority.File, Certificate: certificate, Key: key,
			User: "kb", PasswordFile: file("password", "secret\n", 0o600)}
	}
	for words, change := range map[string]func(*etcdConfig){
		"":                          func(*etcdConfig) {},
		"etcd.ca: ":                 func(c *etcdConfig) { c.CA = file("empty", "", 0o644) },
		"none.pem: no such file":    func(c *etcdConfig) { c.Certificate = filepath.Join(dir, "none.pem") },
		"does not match":            func(c *etcdConfig) { c.Key = another },
		`over.pem" ended on `:       func(c *etcdConfig) { c.Certificate, c.Key = over, overKey },
		"others may read it":        func(c *etcdConfig) { c.PasswordFile = file("open", "secret", 0o640) },
		"is not one line":           func(c *etcdConfig) { c.PasswordFile = file("two", "a\nb\n", 0o600) },
		`nothing" is not one line`:  func(c *etcdConfig) { c.PasswordFile = file("nothing", "\n", 0o600) },
		"is no regular file":        func(c *etcdConfig) { c.PasswordFile = "/dev/zero" },
		"more than 4096 bytes":      func(c *etcdConfig) { c.PasswordFile = file("long", strings.Repeat("x", 4097), 0o600) },
		"etcd.password_file: open ": func(c *etcdConfig) { c.PasswordFile = filepath.Join(dir, "none") },
	} {
		c := good()
		change(&c)
		if err := c.check(); words == "" && err != nil || words != "" && (err == nil || !strings.Contains(err.Error(), words)) {
			t.Errorf("%v, want %q", err, words)
		}
	}
	c := good()
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := c.check(); err == nil || !strings.Contains(err.Error(), "others may read it") {
		t.Errorf("a key that others may read: %v", err)
	}
	c.PasswordFile = file("password", "other", 0o600)
	if password, err := c.password(); err != nil || password != "other" {
		t.Errorf("the password is %q, %v", password, err)
	}
}
