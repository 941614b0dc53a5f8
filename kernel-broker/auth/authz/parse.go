// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/safeopen"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/strictyaml"
)

// MaxBytes of a policy, which is written by hand.
const MaxBytes = 1 << 20

// Load reads a file. Always are the uids that are administrators on the
// broker's host whatever it says.
func Load(path string, always []uint32) (State, error) {
	text, err := safeopen.Read(path, MaxBytes, func(info os.FileInfo) error {
		if mode := info.Mode().Perm(); mode&0o022 != 0 {
			return fmt.Errorf("%q can be written by others (mode %#o), chmod go-w: %w", path, mode, kb.ErrInvalid)
		}
		return nil
	})
	if err != nil {
		return State{}, fmt.Errorf("policy: %w", err)
	}
	p, err := Parse(path, text)
	if err != nil {
		return State{}, err
	}
	p.Always = always
	sum := sha256.Sum256(text)
	return State{Policy: p, Text: string(text), Digest: "sha256:" + hex.EncodeToString(sum[:]), Since: time.Now()}, nil
}

// Parse reads the text of a policy; name is what its answers call the file.
func Parse(name string, text []byte) (*Policy, error) {
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("%s: has %d bytes, at most %d are read: %w", name, len(text), MaxBytes, kb.ErrInvalid)
	}
	p := &Policy{}
	if err := strictyaml.Decode(name, text, p); err != nil {
		return nil, fmt.Errorf("%w: %w", err, kb.ErrInvalid)
	}
	document := &yaml.Node{}
	if err := yaml.Unmarshal(text, document); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", name, err, kb.ErrInvalid)
	}
	c := &checker{name: name, document: document}
	c.plain(document)
	c.policy(p)
	if err := errors.Join(c.wrong...); err != nil {
		return nil, err
	}
	return p, nil
}

// fromLocal is the place that is the broker's own host.
const fromLocal = "local"

// checker completes a decoded policy with lines and places, and gathers what is wrong with it.
type checker struct {
	name     string
	document *yaml.Node
	wrong    []error
}

func (c *checker) refuse(line int, format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Errorf("%s:%d: %s: %w", c.name, line, fmt.Sprintf(format, args...), kb.ErrInvalid))
}

// plain refuses what a reader of the file could take for something else.
func (c *checker) plain(n *yaml.Node) {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		c.refuse(n.Line, "anchors and aliases are not read here, write it out")
		return
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		c.refuse(n.Line, "a value is missing; [] is nobody, and what is left out is the default")
	case n.Kind == yaml.MappingNode:
		for i := 0; i < len(n.Content); i += 2 {
			if n.Content[i].Tag == "!!merge" {
				c.refuse(n.Content[i].Line, "<< is not read here, write it out")
			}
		}
	}
	for _, child := range n.Content {
		c.plain(child)
	}
}

func (c *checker) line(path ...any) int { return strictyaml.Line(c.document, path...) }

func (c *checker) policy(p *Policy) {
	p.File = c.name
	c.role(&p.Administrators, "administrators")
	c.role(&p.Builders, "builders")
	c.rights(&p.Default, "default")
	if p.Default.Use == nil {
		p.Default.Use = []Rule{{Everybody: true}}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Profiles)) {
		rights := p.Profiles[name]
		if err := kb.ValidateProfileName(name); err != nil {
			c.refuse(c.line("profiles", name), "%v", err)
		}
		if name == kb.StockProfile && rights.Use != nil {
			c.refuse(c.line("profiles", name, "use"), "every job may run on stock, which no rule can change")
		}
		c.rights(&rights, "profiles", name)
		p.Profiles[name] = rights
	}
}

func (c *checker) role(r *Role, key string) {
	r.Line = c.line(key)
	c.names(r.Users, key, "users")
	c.names(r.Groups, key, "groups")
	r.Local = r.From == nil
	for i, text := range r.From {
		if text == fromLocal {
			r.Local = true
			continue
		}
		network, err := netip.ParsePrefix(text)
		if err != nil {
			var address netip.Addr
			if address, err = netip.ParseAddr(text); err == nil && address.Zone() == "" {
				network = netip.PrefixFrom(address, address.BitLen())
			}
		}
		if !network.IsValid() || network != network.Masked() || network.Addr().Is4In6() {
			c.refuse(c.line(key, "from", i), "%q is neither local nor an address nor a network like 10.0.0.0/24", text)
			continue
		}
		r.Networks = append(r.Networks, network)
	}
}

func (c *checker) rights(r *Rights, path ...any) {
	r.Line = c.line(path...)
	c.rules(r.Use, append(slices.Clone(path), "use"))
	c.rules(r.Publish, append(slices.Clone(path), "publish"))
	for _, rule := range r.Publish {
		if len(rule.Accounts)+len(rule.Partitions) > 0 {
			c.refuse(rule.Line, "nobody publishes with an account or in a partition, those are for use")
		}
		if rule.Everybody {
			c.refuse(rule.Line, "a kernel that everybody may publish is one that everybody may run as root")
		}
	}
}

func (c *checker) rules(list []Rule, path []any) {
	for i := range list {
		r, at := &list[i], append(slices.Clone(path), i)
		r.Line = c.line(at...)
		for key, names := range map[string][]string{"users": r.Users, "groups": r.Groups, "accounts": r.Accounts, "partitions": r.Partitions} {
			c.names(names, append(at, key)...)
		}
		people := len(r.Users) + len(r.Groups)
		switch {
		case r.Everybody && people > 0:
			c.refuse(r.Line, "a rule is for everybody or for users and groups")
		case !r.Everybody && people+len(r.Accounts)+len(r.Partitions) == 0:
			c.refuse(r.Line, "the rule says for whom it is by nothing; write everybody: true, or leave it out")
		}
	}
}

// maxName is longer than any name of a user, group, account or partition.
const maxName = 256

// names checks a list. One that was written and has nothing in it would read
// as "nobody" and mean "anybody".
func (c *checker) names(list []string, path ...any) {
	if list != nil && len(list) == 0 {
		c.refuse(c.line(path...), "the list is empty; leave it out, or write who it is for")
	}
	for i, name := range list {
		if name == "" || len(name) > maxName || strings.TrimSpace(name) != name ||
			strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c == 0x7f || c == ',' || c == ':' }) {
			c.refuse(c.line(append(path, i)...), "%q cannot be a name", name)
		}
		if slices.Contains(list[:i], name) {
			c.refuse(c.line(append(path, i)...), "%q is named twice", name)
		}
	}
}
