// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/similar"
)

// UnknownProfiles warns of profiles with rules that are not among the registered ones: a kernel that the policy misspells
// has the default's rules, which usually are that everybody may use it.
func (p *Policy) UnknownProfiles(registered []string) []string {
	var warnings []string
	for _, name := range slices.Sorted(maps.Keys(p.Profiles)) {
		// Of an application's two kernels either may be registered first.
		known := func(other string) bool { return baseOf(other) == baseOf(name) }
		if name == kb.StockProfile || slices.ContainsFunc(registered, known) {
			continue
		}
		text := fmt.Sprintf("%s:%d: no profile %q is registered, so its rules restrict no kernel", p.File, p.Profiles[name].Line, name)
		if near := similar.Names(name, registered); len(near) > 0 {
			text += fmt.Sprintf("; did you mean %q?", near[0])
		}
		warnings = append(warnings, text)
	}
	return warnings
}

// People finds users and groups, and says how the host calls them. The error is kernelbroker.ErrNotFound or
// ErrInvalid for a name that nobody has; any other says that nobody knows.
type People interface {
	ByName(ctx context.Context, name string) (kb.User, error)
	Group(ctx context.Context, name string) (string, error)
}

// UnknownPeople warns of users and groups that the host does not know, or calls by another name. Each is looked up once.
func (p *Policy) UnknownPeople(ctx context.Context, people People) []string {
	users, groups := firstLines{}, firstLines{}
	for _, role := range []Role{p.Administrators, p.Builders} {
		users.add(role.Users, role.Line)
		groups.add(role.Groups, role.Line)
	}
	for rule := range p.rules() {
		users.add(rule.Users, rule.Line)
		groups.add(rule.Groups, rule.Line)
	}
	var warnings []string
	warn := func(line int, what, database, name, has string, err error) {
		text := fmt.Sprintf("%s:%d: this host knows no %s %q (getent %s %s)", p.File, line, what, name, database, name)
		switch {
		case err == nil && has != name:
			text += fmt.Sprintf("; did you mean %q?", has)
		case !errors.Is(err, kb.ErrNotFound) && !errors.Is(err, kb.ErrInvalid):
			return
		}
		warnings = append(warnings, text)
	}
	for _, name := range slices.Sorted(maps.Keys(users)) {
		if _, err := strconv.ParseUint(name, 10, 32); err == nil {
			continue // a uid, which needs no name
		}
		user, err := people.ByName(ctx, name)
		warn(users[name], "user", "passwd", name, user.Name, err)
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		has, err := people.Group(ctx, name)
		warn(groups[name], "group", "group", name, has, err)
	}
	return warnings
}

// firstLines has the first line of each name.
type firstLines map[string]int

func (f firstLines) add(names []string, line int) {
	for _, name := range names {
		if first, has := f[name]; !has || line < first {
			f[name] = line
		}
	}
}
