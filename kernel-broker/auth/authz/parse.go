// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/strictyaml"
)

// fromLocal is the place that is the broker's own host.
const fromLocal = "local"

// maker makes a policy of a decoded file, and gathers what is wrong with it.
type maker struct {
	name     string
	document *yaml.Node
	wrong    []error
}

func (m *maker) refuse(line int, format string, args ...any) {
	m.wrong = append(m.wrong, fmt.Errorf("%s:%d: %s: %w", m.name, line, fmt.Sprintf(format, args...), kb.ErrInvalid))
}

// plain refuses what a reader of the file could take for something else.
func (m *maker) plain(n *yaml.Node) {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		m.refuse(n.Line, "anchors and aliases are not read here, write it out")
		return
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		m.refuse(n.Line, "a value is missing; [] is nobody, and what is left out is the default")
	case n.Kind == yaml.MappingNode:
		for i := 0; i < len(n.Content); i += 2 {
			if n.Content[i].Tag == "!!merge" {
				m.refuse(n.Content[i].Line, "<< is not read here, write it out")
			}
		}
	}
	for _, child := range n.Content {
		m.plain(child)
	}
}

func (m *maker) line(path ...any) int { return strictyaml.Line(m.document, path...) }

func (m *maker) policy(f file) *Policy {
	p := &Policy{
		File:           m.name,
		Administrators: m.role("administrators", f.Administrators),
		Builders:       m.role("builders", f.Builders),
		Default:        m.rights(f.Default, "default"),
		Profiles:       map[string]Rights{},
	}
	if p.Default.Use == nil {
		p.Default.Use = []Rule{{Everybody: true}}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Profiles)) {
		at := m.line("profiles", name)
		if err := kb.ValidateProfileName(name); err != nil {
			m.refuse(at, "%v", err)
			continue
		}
		if name == kb.StockProfile && f.Profiles[name].Use != nil {
			m.refuse(m.line("profiles", name, "use"), "every job may run on stock, which no rule can change")
		}
		p.Profiles[name] = m.rights(f.Profiles[name], "profiles", name)
	}
	return p
}

func (m *maker) role(key string, r role) Role {
	out := Role{Users: m.names(r.Users, key, "users"), Groups: m.names(r.Groups, key, "groups"), Line: m.line(key)}
	if r.From == nil {
		out.Local = true
	}
	for i, text := range r.From {
		if text == fromLocal {
			out.Local = true
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
			m.refuse(m.line(key, "from", i), "%q is neither local nor an address nor a network like 10.0.0.0/24", text)
			continue
		}
		out.Networks = append(out.Networks, network)
	}
	return out
}

func (m *maker) rights(r rights, path ...any) Rights {
	out := Rights{Line: m.line(path...)}
	out.Use = m.rules(r.Use, append(slices.Clone(path), "use"))
	out.Publish = m.rules(r.Publish, append(slices.Clone(path), "publish"))
	for i, rule := range out.Publish {
		if len(rule.Accounts)+len(rule.Partitions) > 0 {
			m.refuse(m.line(append(slices.Clone(path), "publish", i)...), "nobody publishes with an account or in a partition, those are for use")
		}
		if rule.Everybody {
			m.refuse(m.line(append(slices.Clone(path), "publish", i)...), "a kernel that everybody may publish is one that everybody may run as root")
		}
	}
	return out
}

func (m *maker) rules(list []rule, path []any) []Rule {
	if list == nil {
		return nil
	}
	out := make([]Rule, 0, len(list))
	for i, r := range list {
		at := append(slices.Clone(path), i)
		rule := Rule{Everybody: r.Everybody, Line: m.line(at...),
			Users: m.names(r.Users, append(at, "users")...), Groups: m.names(r.Groups, append(at, "groups")...),
			Accounts: m.names(r.Accounts, append(at, "accounts")...), Partitions: m.names(r.Partitions, append(at, "partitions")...)}
		people := len(rule.Users) + len(rule.Groups)
		switch {
		case r.Everybody && people > 0:
			m.refuse(rule.Line, "a rule is for everybody or for users and groups")
		case !r.Everybody && people+len(rule.Accounts)+len(rule.Partitions) == 0:
			m.refuse(rule.Line, "the rule says for whom it is by nothing; write everybody: true, or leave it out")
		}
		out = append(out, rule)
	}
	return out
}

// maxName is longer than any name of a user, group, account or partition.
const maxName = 256

// names checks a list. One that was written and has nothing in it would read
// as "nobody" and mean "anybody".
func (m *maker) names(list []string, path ...any) []string {
	if list != nil && len(list) == 0 {
		m.refuse(m.line(path...), "the list is empty; leave it out, or write who it is for")
	}
	for i, name := range list {
		if name == "" || len(name) > maxName || strings.TrimSpace(name) != name ||
			strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c == 0x7f || c == ',' || c == ':' }) {
			m.refuse(m.line(append(path, i)...), "%q cannot be a name", name)
		}
		if slices.Contains(list[:i], name) {
			m.refuse(m.line(append(path, i)...), "%q is named twice", name)
		}
	}
	return list
}
