// SPDX-License-Identifier: Apache-2.0

// Package authz decides who may do what, says why, and records each answer.
//
// A Policy decides: Decide is a pure function of the policy and a question.
// There are no rules that forbid. What no rule allows is denied, so the order
// of rules never matters and one line answers why. Administrators may do
// everything, builders may publish kernels, and every known user may look.
// Rules per profile say who may use it and who may publish it, and the same of
// its instrumented kernel; the default's rules apply to a profile without its own. The rights of administrators and
// builders depend on where they come from, too: on the broker's host unless the
// policy names other places. Root on one node can be any user to MUNGE, but
// not from anywhere.
//
// Load reads the policy's file, and is stricter than YAML: an unknown key, an
// impossible name, a rule that says nothing, an empty value and every alias is
// an error with its line. A name that nothing and nobody has is no error, since
// it may come to be later: Policy.UnknownProfiles and UnknownPeople warn of it.
//
// An Authorizer holds the policy in force, looks up what the policy asks of a
// user, and records the answers. Calls come to it from the server, jobs from
// the controller. An unreadable policy is an error at the start; later the
// policy in force stays in force, and Health says so until the file is good.
package authz

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/safeopen"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/strictyaml"
)

// Action is something that a subject wants to do to an object.
type Action string

// The actions. Those on a profile have its name, with or without a version, as
// their object.
const (
	// View looks at profiles, kernels, nodes and jobs.
	View Action = "view"
	// Use runs a job on a profile's kernel.
	Use Action = "use"
	// Profile has the own jobs on a profile's kernel profiled.
	Profile Action = "profile"
	// Publish registers versions of a profile and chooses the default one.
	Publish Action = "publish"
	// Upload stores files that a version is then made of.
	Upload Action = "upload"
	// Retire takes a profile or a version out of use.
	Retire Action = "retire"
	// Quarantine bars a version, Release ends that.
	Quarantine Action = "quarantine"
	Release    Action = "release"
	// Collect removes stored files that nothing needs.
	Collect Action = "collect"
	// Trust lets nodes in and keeps them out.
	Trust Action = "trust"
	// Inspect looks at the policy, asks it about others, and lists what is
	// stored and trusted.
	Inspect Action = "inspect"
	// Administer is everything else that only administrators may.
	Administer Action = "administer"
)

// Actions lists them all.
var Actions = []Action{View, Use, Profile, Publish, Upload, Retire, Quarantine, Release, Collect, Trust, Inspect, Administer}

// onProfile are the actions whose object is a profile.
var onProfile = []Action{Use, Profile, Publish, Retire, Quarantine, Release}

func (a Action) OnProfile() bool { return slices.Contains(onProfile, a) }

// ofJobs reports whether the action is one that a user takes by a job.
func (a Action) ofJobs() bool { return a == Use || a == Profile }

// Place is where a subject comes from.
type Place struct {
	// Local: through the broker's socket. Else by the address.
	Local   bool
	Address netip.Addr
}

func (p Place) String() string {
	if p.Local {
		return "the broker's host"
	}
	return p.Address.String()
}

// Job is what slurmctld says of the job that a profile is wanted for.
type Job struct{ Account, Partition string }

// Subject is who wants to do something.
type Subject struct {
	UID  uint32
	User string // empty for a uid without a name
	// Groups by name; like User only needed when the policy NeedsUsers.
	Groups []string
	From   Place
	// Accounts are those that Slurm has for the user; nil where nobody knows, or
	// where Slurm lets everybody name any. They only ever take away: what a job
	// has is in Job.
	Accounts []string
	// Job is nil where none is known yet. What then hangs on it is allowed with
	// a proviso.
	Job *Job
}

// Question is what Decide answers.
type Question struct {
	Subject Subject
	Action  Action
	Object  string
}

type Answer struct {
	Allowed bool
	// Reason is a whole sentence: who, what, why.
	Reason string
	// Proviso, of something allowed, is what of the job it hangs on.
	Proviso string
	// Line of the policy's file that decided; 0 where none did.
	Line int
}

// Rule allows what all of its parts fit; a part that is empty fits everybody,
// and one of its names is enough.
type Rule struct {
	Everybody                           bool
	Users, Groups, Accounts, Partitions []string
	Line                                int `yaml:"-"`
}

// Rights of one profile. Nil is not the same as empty: what is not said is the
// default's, and empty rules fit nobody.
type Rights struct {
	Use, Profile, Publish []Rule
	Line                  int `yaml:"-"`
}

// Role is users and groups, and the places from where they have it.
type Role struct {
	// From are the places as the file has them, Local and Networks what they mean.
	Users, Groups, From []string
	Local               bool           `yaml:"-"`
	Networks            []netip.Prefix `yaml:"-"`
	Line                int            `yaml:"-"`
}

// Policy is who may do what, as its file has it. It is not changed once it is in use.
type Policy struct {
	// File is where it was read from; empty for the one that holds without.
	File                     string `yaml:"-"`
	Administrators, Builders Role
	// Always are uids that are administrators on the broker's host whatever the
	// file says: root and the broker's own, who could change the file.
	Always   []uint32 `yaml:"-"`
	Default  Rights
	Profiles map[string]Rights
}

// DefaultPolicy is the policy of a broker that has no file: everybody may use
// what is published, and the given users administer it, on the broker's host.
func DefaultPolicy(always []uint32) *Policy {
	return &Policy{
		Administrators: Role{Local: true}, Builders: Role{Local: true}, Always: always,
		Default: Rights{Use: []Rule{{Everybody: true}}},
	}
}

func (p *Policy) rules() iter.Seq[Rule] {
	return func(yield func(Rule) bool) {
		for _, r := range append(slices.Collect(maps.Values(p.Profiles)), p.Default) {
			for _, rule := range slices.Concat(r.Use, r.Profile, r.Publish) {
				if !yield(rule) {
					return
				}
			}
		}
	}
}

// NeedsUsers reports whether a subject's name or groups can matter.
func (p *Policy) NeedsUsers() bool {
	named := len(p.Administrators.Users) + len(p.Administrators.Groups) + len(p.Builders.Users) + len(p.Builders.Groups)
	for r := range p.rules() {
		named += len(r.Users) + len(r.Groups)
	}
	return named > 0
}

// NeedsAccounts reports whether a job's account can matter.
func (p *Policy) NeedsAccounts() bool { return len(p.Accounts()) > 0 }

// Accounts are all that rules name, each once and in order.
func (p *Policy) Accounts() []string {
	var names []string
	for r := range p.rules() {
		names = append(names, r.Accounts...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Restricted reports whether there may be somebody who may not use a profile.
func (p *Policy) Restricted(profile string) bool {
	if profile == kb.StockProfile {
		return false
	}
	rules, _ := p.use(profile)
	return !slices.ContainsFunc(rules, func(r Rule) bool {
		return r.Everybody && len(r.Accounts)+len(r.Partitions)+len(r.Users)+len(r.Groups) == 0
	})
}

// use returns the rules for using a profile and the line where they begin.
func (p *Policy) use(profile string) ([]Rule, int) {
	r := p.rights(profile, func(r Rights) bool { return r.Use != nil })
	return r.Use, r.Line
}

// profile returns the rules for profiling jobs on a profile's kernel; nil: whoever may use it may.
func (p *Policy) profile(profile string) ([]Rule, int) {
	r := p.rights(profile, func(r Rights) bool { return r.Profile != nil })
	return r.Profile, r.Line
}

// publish returns the rules for publishing a profile; nil: builders may.
func (p *Policy) publish(profile string) ([]Rule, int) {
	r := p.rights(profile, func(r Rights) bool { return r.Publish != nil })
	return r.Publish, r.Line
}

// rights returns those of a profile that say something, else the default's. The
// instrumented kernel of an application is as restricted as its own.
func (p *Policy) rights(profile string, say func(Rights) bool) Rights {
	for _, name := range []string{profile, baseOf(profile)} {
		if r, named := p.Profiles[name]; named && say(r) {
			return r
		}
	}
	return p.Default
}

// baseOf takes off what makes a profile's name that of its instrumented kernel.
func baseOf(profile string) string { return strings.TrimSuffix(profile, kb.InstrumentedSuffix) }

// profileOf takes the version off an object.
func profileOf(object string) string {
	name, _, _ := strings.Cut(object, "@")
	return name
}

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
	return State{Policy: p, Text: string(text), Digest: digest.Of(text), Since: time.Now()}, nil
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
		network, err := ParseNetwork(text)
		if err != nil {
			c.refuse(c.line(key, "from", i), "%q is neither local nor an address nor a network like 10.0.0.0/24", text)
			continue
		}
		r.Networks = append(r.Networks, network)
	}
}

// ParseNetwork reads an address, or a network like 10.0.0.0/24.
func ParseNetwork(text string) (netip.Prefix, error) {
	network, err := netip.ParsePrefix(text)
	if err != nil {
		var address netip.Addr
		if address, err = netip.ParseAddr(text); err == nil && address.Zone() == "" {
			network = netip.PrefixFrom(address, address.BitLen())
		}
	}
	if !network.IsValid() || network != network.Masked() || network.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%q is neither an address nor a network like 10.0.0.0/24: %w", text, kb.ErrInvalid)
	}
	return network, nil
}

func (c *checker) rights(r *Rights, path ...any) {
	r.Line = c.line(path...)
	c.rules(r.Use, append(slices.Clone(path), "use"))
	c.rules(r.Profile, append(slices.Clone(path), "profile"))
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
