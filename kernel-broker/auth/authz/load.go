// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	"go.yaml.in/yaml/v3"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/safeopen"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/strictyaml"
)

// MaxBytes of a policy, which is written by hand.
const MaxBytes = 1 << 20

// file is the YAML of a policy. What is nil was not said.
type file struct {
	Administrators role              `yaml:"administrators"`
	Builders       role              `yaml:"builders"`
	Default        rights            `yaml:"default"`
	Profiles       map[string]rights `yaml:"profiles"`
}

type role struct {
	Users  []string `yaml:"users"`
	Groups []string `yaml:"groups"`
	From   []string `yaml:"from"`
}

type rights struct {
	Use     []rule `yaml:"use"`
	Publish []rule `yaml:"publish"`
}

type rule struct {
	Everybody  bool     `yaml:"everybody"`
	Users      []string `yaml:"users"`
	Groups     []string `yaml:"groups"`
	Accounts   []string `yaml:"accounts"`
	Partitions []string `yaml:"partitions"`
}

// Loaded is a policy with the text that it was read from.
type Loaded struct {
	Policy *Policy
	Text   string
	// Digest of the text, for the record.
	Digest string
}

// Load reads a file. Always are the uids that are administrators on the
// broker's host whatever it says.
func Load(path string, always []uint32) (Loaded, error) {
	text, err := safeopen.Read(path, MaxBytes, func(info os.FileInfo) error {
		if mode := info.Mode().Perm(); mode&0o022 != 0 {
			return fmt.Errorf("%q can be written by others (mode %#o), chmod go-w: %w", path, mode, kb.ErrInvalid)
		}
		return nil
	})
	if err != nil {
		return Loaded{}, fmt.Errorf("policy: %w", err)
	}
	p, err := Parse(path, text)
	if err != nil {
		return Loaded{}, err
	}
	p.Always = always
	sum := sha256.Sum256(text)
	return Loaded{Policy: p, Text: string(text), Digest: "sha256:" + hex.EncodeToString(sum[:])}, nil
}

// Parse reads the text of a policy; name is what its answers call the file.
func Parse(name string, text []byte) (*Policy, error) {
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("%s: has %d bytes, at most %d are read: %w", name, len(text), MaxBytes, kb.ErrInvalid)
	}
	var f file
	if err := strictyaml.Decode(name, text, &f); err != nil {
		return nil, fmt.Errorf("%w: %w", err, kb.ErrInvalid)
	}
	document := &yaml.Node{}
	if err := yaml.Unmarshal(text, document); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", name, err, kb.ErrInvalid)
	}
	r := &maker{name: name, document: document}
	r.plain(document)
	p := r.policy(f)
	if len(r.wrong) > 0 {
		return nil, errors.Join(r.wrong...)
	}
	return p, nil
}
