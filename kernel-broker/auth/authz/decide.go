// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

func (p *Policy) Decide(q Question) Answer {
	d := decision{Policy: p, Question: q}
	role, line, nearly := d.administrator()
	if role {
		return d.allow(line, "administrators may do everything")
	}
	var a Answer
	switch q.Action {
	case View:
		return d.allow(0, "every authenticated user may view")
	case Use:
		return d.mayUse()
	case Profile:
		return d.mayProfile()
	case Publish:
		a = d.mayPublish()
	case Upload:
		a = d.mayUpload()
	case Retire, Quarantine, Release, Collect, Trust, Inspect, Administer:
		a = d.deny(0, "only administrators may")
	default:
		return d.deny(0, fmt.Sprintf("there is no such action, there are %s", strings.ReplaceAll(strings.Trim(fmt.Sprint(Actions), "[]"), " ", ", ")))
	}
	if !a.Allowed && nearly != "" {
		a.Reason, a.Line = a.Reason+"; "+nearly, line
	}
	return a
}

type decision struct {
	*Policy
	Question
}

// administrator reports whether the subject is one here, and the line that says
// so; or, in words, that it would be one elsewhere.
func (d decision) administrator() (is bool, line int, nearly string) {
	s := d.Subject
	here := s.From.Local || d.Action.ofJobs() // a job comes from nowhere
	if slices.Contains(d.Always, s.UID) {
		if here {
			return true, 0, ""
		}
		nearly = fmt.Sprintf("uid %d is an administrator on the broker's host, and came from %s", s.UID, s.From)
	}
	role := d.Administrators
	if !role.has(s) {
		return false, 0, nearly
	}
	if d.Action.ofJobs() || role.from(s.From) {
		return true, role.Line, ""
	}
	return false, role.Line, fmt.Sprintf("administrators have their role from %s, and this one came from %s", role.places(), s.From)
}

func (d decision) mayUse() Answer {
	profile := profileOf(d.Object)
	if profile == kb.StockProfile {
		return d.allow(0, "stock is for everybody")
	}
	rules, line := d.use(profile)
	return d.byRules(rules, line, "use")
}

// mayProfile allows whoever may use a kernel, unless rules say who.
func (d decision) mayProfile() Answer {
	rules, line := d.profile(profileOf(d.Object))
	if rules == nil {
		return d.mayUse()
	}
	return d.byRules(rules, line, "profile")
}

func (d decision) mayPublish() Answer {
	profile := profileOf(d.Object)
	// What holds for the others does not hold for stock: its own rules have to
	// say who publishes it.
	if own := d.Profiles[profile]; profile == kb.StockProfile && own.Publish == nil {
		return d.deny(own.Line, "only administrators publish stock, to which every node goes back")
	}
	if rules, line := d.publish(profile); rules != nil {
		return d.fromBuilders(d.byRules(rules, line, "publish"))
	}
	if !d.Builders.has(d.Subject) {
		return d.deny(d.Builders.Line, "only builders and administrators publish it")
	}
	return d.fromBuilders(d.allow(d.Builders.Line, "builders may publish"))
}

// mayUpload allows every subject that may publish some profile.
func (d decision) mayUpload() Answer {
	line := d.Builders.Line
	if !d.Builders.has(d.Subject) {
		rule, found := d.publisher()
		if !found {
			return d.deny(0, "only those upload who may publish some profile")
		}
		line = rule.Line
	}
	return d.fromBuilders(d.allow(line, "who may publish may upload"))
}

// fromBuilders takes an answer back that is not for where the subject is.
func (d decision) fromBuilders(a Answer) Answer {
	if !a.Allowed || d.Builders.from(d.Subject.From) {
		return a
	}
	return d.deny(d.Builders.Line, fmt.Sprintf("kernels are published from %s, and this came from %s", d.Builders.places(), d.Subject.From))
}

func (d decision) publisher() (Rule, bool) {
	rights := []Rights{d.Default}
	for _, r := range d.Profiles {
		rights = append(rights, r)
	}
	best, found := Rule{}, false
	for _, r := range rights {
		for _, rule := range r.Publish {
			// The first line, so that the answer is the same each time.
			if fits, _ := rule.fits(d.Subject); fits && (!found || rule.Line < best.Line) {
				best, found = rule, true
			}
		}
	}
	return best, found
}

// byRules is allowed when a rule fits. One that fits without a proviso is
// better than one with.
func (d decision) byRules(rules []Rule, line int, verb string) Answer {
	var with *Answer
	for _, r := range rules {
		fits, proviso := r.fits(d.Subject)
		if !fits {
			continue
		}
		a := d.allow(r.Line, "the rule is for "+r.String())
		if proviso == "" {
			return a
		}
		if with == nil {
			a.Proviso = proviso
			a.Reason += "; for a job " + proviso
			with = &a
		}
	}
	if with != nil {
		return *with
	}
	if len(rules) == 0 {
		return d.deny(line, fmt.Sprintf("nobody but administrators may %s it", verb))
	}
	texts := make([]string, len(rules))
	for i, r := range rules {
		texts[i] = r.String()
	}
	return d.deny(rules[0].Line, fmt.Sprintf("it is for %s%s", strings.Join(texts, "; or "), d.Subject.has(rules)))
}

// has says which accounts the subject has, where rules hang on that.
func (s Subject) has(rules []Rule) string {
	if s.Accounts == nil || !slices.ContainsFunc(rules, func(r Rule) bool { return len(r.Accounts) > 0 }) {
		return ""
	}
	if len(s.Accounts) == 0 {
		return ", and Slurm has no account for this user"
	}
	// Quoted: coordinators choose the names.
	names := make([]string, 0, mostNamed)
	for _, name := range s.Accounts {
		if len(names) == mostNamed {
			return fmt.Sprintf(", and Slurm has the accounts %s and %d more for this user", strings.Join(names, ", "), len(s.Accounts)-mostNamed)
		}
		names = append(names, strconv.Quote(name))
	}
	return fmt.Sprintf(", and Slurm has the accounts %s for this user", strings.Join(names, ", "))
}

// mostNamed names are in one answer or record, which people read.
const mostNamed = 8

func (d decision) allow(line int, why string) Answer {
	return Answer{Allowed: true, Line: line, Reason: d.sentence("may", line, why)}
}

func (d decision) deny(line int, why string) Answer {
	return Answer{Line: line, Reason: d.sentence("may not", line, why)}
}

func (d decision) sentence(may string, line int, why string) string {
	object := ""
	switch {
	case d.Action == Profile:
		object = fmt.Sprintf(" jobs on %q", d.Object)
	case d.Action.OnProfile():
		object = fmt.Sprintf(" profile %q", d.Object)
	case d.Object != "":
		object = fmt.Sprintf(" %q", d.Object)
	}
	text := fmt.Sprintf("%s %s %s%s: %s", d.Subject, may, d.Action, object, why)
	if line > 0 {
		text += fmt.Sprintf(" (%s:%d)", d.File, line)
	}
	return text
}

// String names the subject as a person would look for it.
func (s Subject) String() string {
	text := fmt.Sprintf("uid %d", s.UID)
	if s.User != "" {
		text = fmt.Sprintf("user %q", s.User)
	}
	if s.Job != nil {
		text += fmt.Sprintf(" with account %q in partition %q", s.Job.Account, s.Job.Partition)
	}
	return text
}

// fits reports whether a rule fits, and what must be true of a job that is not
// known yet.
func (r Rule) fits(s Subject) (fits bool, proviso string) {
	if !isOne(r.Users, s) || !common(r.Groups, s.Groups) {
		return false, ""
	}
	accounts := r.Accounts
	if len(accounts) > 0 && s.Accounts != nil {
		accounts = slices.DeleteFunc(slices.Clone(accounts), func(name string) bool { return !slices.Contains(s.Accounts, name) })
		if len(accounts) == 0 {
			return false, ""
		}
	}
	if s.Job != nil {
		return among(accounts, s.Job.Account) && among(r.Partitions, s.Job.Partition), ""
	}
	var parts []string
	if len(accounts) > 0 {
		parts = append(parts, "with account "+either(accounts))
	}
	if len(r.Partitions) > 0 {
		parts = append(parts, "in partition "+either(r.Partitions))
	}
	return true, strings.Join(parts, " ")
}

func (r Rule) String() string {
	var parts []string
	for _, part := range []struct {
		what  string
		names []string
	}{{"user", r.Users}, {"group", r.Groups}, {"account", r.Accounts}, {"partition", r.Partitions}} {
		if len(part.names) > 0 {
			parts = append(parts, part.what+" "+either(part.names))
		}
	}
	if r.Everybody {
		parts = append([]string{"everybody"}, parts...)
	}
	return strings.Join(parts, " and ")
}

func (r Role) has(s Subject) bool {
	return len(r.Users) > 0 && isOne(r.Users, s) || len(r.Groups) > 0 && common(r.Groups, s.Groups)
}

func (r Role) from(p Place) bool {
	if p.Local {
		return r.Local
	}
	return slices.ContainsFunc(r.Networks, func(n netip.Prefix) bool { return n.Contains(p.Address.Unmap()) })
}

func (r Role) places() string {
	var places []string
	if r.Local {
		places = append(places, "the broker's host")
	}
	for _, n := range r.Networks {
		places = append(places, n.String())
	}
	if len(places) == 0 {
		return "nowhere"
	}
	return either(places)
}

// isOne reports whether the subject is named, by name or uid; no names fit
// everybody.
func isOne(names []string, s Subject) bool {
	return len(names) == 0 || s.User != "" && slices.Contains(names, s.User) ||
		slices.Contains(names, strconv.FormatUint(uint64(s.UID), 10))
}

func common(names, have []string) bool {
	return len(names) == 0 || slices.ContainsFunc(have, func(name string) bool { return slices.Contains(names, name) })
}

func among(names []string, name string) bool { return len(names) == 0 || slices.Contains(names, name) }

func either(names []string) string { return strings.Join(names, " or ") }
