// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/record"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/hostlist"
)

const (
	ledgerPrefix = "hardware/"
	rulesKey     = "hardware-rules"
	// mostRows limits the ledger; the row that was tried longest ago makes room.
	mostRows = 1024
)

func ledgerKey(id string) string { return ledgerPrefix + id }

var ledgerKind = record.Kind[kb.LedgerRow]{
	Prefix: ledgerPrefix,
	Entry:  func(r *kb.LedgerRow) record.Entry { return record.Entry{Key: ledgerKey(r.ID())} },
}

// ledger is how kexec works by hardware, and the rules on it. Rows and rules are replaced, never changed.
type ledger struct {
	rows  map[string]*kb.LedgerRow
	rules []kb.HardwareRule
	// damaged are the records of rows that cannot be read, with the error.
	damaged map[string]error
}

// health is the ledger in a line.
func (l ledger) health() string {
	text := fmt.Sprintf("%d rows", len(l.rows))
	if len(l.damaged) > 0 {
		text += ", left out since they cannot be read: " + strings.Join(slices.Sorted(maps.Keys(l.damaged)), ", ")
	}
	return text
}

// hardwareRules is the record of the rules.
type hardwareRules struct {
	Rules []kb.HardwareRule `json:"rules"`
}

// ledgerChange is what becomes of the ledger with a commit.
type ledgerChange struct {
	rows map[string]*kb.LedgerRow
	gone []string
	// rules are all of them; nil: unchanged.
	rules *hardwareRules
	// made are the rules among them that follow from rows.
	made []kb.HardwareRule
}

// loadLedger reads the ledger, and the revisions of its records. A damaged row is left out: only figures depend on it,
// and the next boot of its kind replaces it. Without damaged rules, nodes would do what they forbid.
func loadLedger(ctx context.Context, s store.Store, revisions map[string]int64) (ledger, error) {
	l := ledger{rows: map[string]*kb.LedgerRow{}, damaged: map[string]error{}}
	rows := ledgerKind
	rows.Damaged = func(rec store.Record, err error) { l.damaged[rec.Key], revisions[rec.Key] = err, rec.Revision }
	err := rows.Each(ctx, s, func(row *kb.LedgerRow, rec store.Record) {
		l.rows[row.ID()], revisions[ledgerKey(row.ID())] = row, rec.Revision
	})
	if err != nil {
		return l, err
	}
	rec, err := s.Get(ctx, rulesKey)
	if errors.Is(err, store.ErrNotFound) {
		return l, nil
	}
	if err != nil {
		return l, fmt.Errorf("record %q: %w: %w", rulesKey, kb.ErrUnavailable, err)
	}
	var kept hardwareRules
	text, err := record.Unpack(rec)
	if err == nil {
		err = record.Decode(rec.Key, text, &kept, func() string { return rulesKey })
	}
	if err != nil {
		return l, err
	}
	l.rules, revisions[rulesKey] = kept.Rules, rec.Revision
	return l, nil
}

// fold counts tries, drops the rules that were used, and makes those that follow: kernels whose return by kexec failed
// after times in a row, on two nodes or more of the same hardware, return by a reboot from then on.
func (l ledger) fold(tries []kb.Try, used []string, after uint32, now time.Time) ledgerChange {
	change := ledgerChange{rows: map[string]*kb.LedgerRow{}}
	rules := slices.DeleteFunc(slices.Clone(l.rules), func(r kb.HardwareRule) bool { return slices.Contains(used, r.Name) })
	for _, t := range tries {
		row := t.Row()
		id := row.ID()
		if have := cmp.Or(change.rows[id], l.rows[id]); have != nil {
			row = have.Clone()
		}
		row.Add(t)
		change.rows[id] = row
		if rule, due := ruleOf(row, after, now); due && len(rules) < kb.MaxHardwareRules && !slices.ContainsFunc(rules, func(r kb.HardwareRule) bool { return r.Name == rule.Name }) {
			rules = append(rules, rule)
			change.made = append(change.made, rule)
		}
	}
	change.gone = l.evictable(change.rows)
	if len(rules) != len(l.rules) || len(change.made) > 0 {
		change.rules = &hardwareRules{sortedRules(rules)}
	}
	return change
}

// evictable names the rows that make room for new ones.
func (l ledger) evictable(changed map[string]*kb.LedgerRow) []string {
	more := 0
	for id := range changed {
		if l.rows[id] == nil {
			more++
		}
	}
	over := len(l.rows) + more - mostRows
	if over <= 0 {
		return nil
	}
	old := slices.DeleteFunc(slices.Collect(maps.Keys(l.rows)), func(id string) bool { return changed[id] != nil })
	slices.SortFunc(old, func(a, b string) int {
		return cmp.Or(l.rows[a].Last.Compare(l.rows[b].Last), strings.Compare(a, b))
	})
	return old[:min(over, len(old))]
}

// ruleOf is the rule that follows from a row. None follows from a row without a board: an empty pattern matches every node.
func ruleOf(row *kb.LedgerRow, after uint32, now time.Time) (kb.HardwareRule, bool) {
	if after == 0 || row.Hardware.Board == "" || row.Way != kb.WayReturn || row.Streak < after || len(row.Failed) < 2 {
		return kb.HardwareRule{}, false
	}
	h := row.Hardware
	return kb.HardwareRule{Name: "auto-" + row.ID()[:12], Board: h.Board, Firmware: h.Firmware, NIC: h.NIC, Kernel: row.Kernel.String(),
		Kexec: kb.KexecNoReturn, By: kb.WayReboot, At: now, Author: "kernel-broker",
		Reason: fmt.Sprintf("%d returns by kexec failed in a row, on %s", row.Streak, strings.Join(row.Failed, ", "))}, true
}

func sortedRules(rules []kb.HardwareRule) []kb.HardwareRule {
	slices.SortFunc(rules, func(a, b kb.HardwareRule) int { return strings.Compare(a.Name, b.Name) })
	return rules
}

// writes are the change as writes of the store.
func (c ledgerChange) writes(revisions map[string]int64) ([]store.Write, error) {
	var writes []store.Write
	add := func(key string, value any) error {
		data, err := record.Encode(key, value)
		writes = append(writes, store.Write{Key: key, Value: data, Expect: revisions[key]})
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(c.rows)) {
		if err := add(ledgerKey(id), c.rows[id]); err != nil {
			return nil, err
		}
	}
	for _, id := range c.gone {
		writes = append(writes, store.Write{Key: ledgerKey(id), Delete: true, Expect: revisions[ledgerKey(id)]})
	}
	if c.rules == nil {
		return writes, nil
	}
	return writes, add(rulesKey, c.rules)
}

// keep takes in what was committed.
func (r *records) keepLedger(c ledgerChange) {
	rows := maps.Clone(r.ledger.rows)
	maps.Copy(rows, c.rows)
	for id := range c.rows {
		delete(r.ledger.damaged, ledgerKey(id))
	}
	for _, id := range c.gone {
		delete(rows, id)
		delete(r.revisions, ledgerKey(id))
	}
	r.ledger.rows = rows
	if c.rules != nil {
		r.ledger.rules = c.rules.Rules
	}
}

// Hardware returns the ledger, sorted by hardware, kernel and way, and the rules by name.
func (c *Controller) Hardware() ([]*kb.LedgerRow, []kb.HardwareRule) {
	c.mu.Lock()
	rows, rules := slices.Collect(maps.Values(c.records.ledger.rows)), c.records.ledger.rules
	c.mu.Unlock()
	order := []kb.Way{kb.WaySwitch, kb.WayReturn, kb.WayReboot, kb.WayReset}
	slices.SortFunc(rows, func(a, b *kb.LedgerRow) int {
		return cmp.Or(strings.Compare(a.Hardware.Board, b.Hardware.Board), strings.Compare(a.Hardware.Firmware, b.Hardware.Firmware),
			strings.Compare(a.Hardware.NIC, b.Hardware.NIC), strings.Compare(a.Kernel.Profile, b.Kernel.Profile),
			cmp.Compare(a.Kernel.Version, b.Kernel.Version), cmp.Compare(slices.Index(order, a.Way), slices.Index(order, b.Way)))
	})
	return rows, rules
}

// LedgerHealth says which rows of the ledger cannot be read.
func (c *Controller) LedgerHealth(context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.records.ledger.health(), nil
}

// SetHardwareRule adds a rule, or replaces the one with its name.
func (c *Controller) SetHardwareRule(ctx context.Context, rule kb.HardwareRule) (kb.HardwareRule, error) {
	if err := rule.Validate(); err != nil {
		return rule, err
	}
	if rule.By == kb.WayReset && !c.o.Plan.CanReset {
		return rule, fmt.Errorf("rule %q: this broker cannot reset nodes (reset_command in broker.yaml): %w", rule.Name, kb.ErrFailedPrecondition)
	}
	rule.At = c.clock.Now()
	return rule, c.changeRules(ctx, func(rules []kb.HardwareRule) ([]kb.HardwareRule, error) {
		rules = slices.DeleteFunc(rules, func(r kb.HardwareRule) bool { return r.Name == rule.Name })
		if len(rules) >= kb.MaxHardwareRules {
			return nil, fmt.Errorf("rule %q: there are %d, remove one first: %w", rule.Name, len(rules), kb.ErrFailedPrecondition)
		}
		return append(rules, rule), nil
	})
}

// RemoveHardwareRule removes a rule.
func (c *Controller) RemoveHardwareRule(ctx context.Context, name string) error {
	return c.changeRules(ctx, func(rules []kb.HardwareRule) ([]kb.HardwareRule, error) {
		left := slices.DeleteFunc(slices.Clone(rules), func(r kb.HardwareRule) bool { return r.Name == name })
		if len(left) == len(rules) {
			return nil, fmt.Errorf("rule %.80q: %w", name, kb.ErrNotFound)
		}
		return left, nil
	})
}

func (c *Controller) changeRules(ctx context.Context, change func([]kb.HardwareRule) ([]kb.HardwareRule, error)) error {
	defer c.toWrite()()
	if c.stale {
		if err := c.loadLocked(ctx); err != nil {
			return fmt.Errorf("rules: %w: %w", kb.ErrUnavailable, err)
		}
		c.stale = false
	}
	rules, err := change(slices.Clone(c.records.ledger.rules))
	if err != nil {
		return err
	}
	if err := c.records.commitAll(ctx, ledgerChange{rules: &hardwareRules{sortedRules(rules)}}, nil, nil); err != nil {
		c.stale = true
		return fmt.Errorf("rules: %w: %w", kb.ErrUnavailable, err)
	}
	c.markAllLocked()
	return nil
}

// mostExcluded bounds the list of nodes to exclude: a comment of Slurm's is read up to 1,100 characters.
const mostExcluded = 512

// forbiddenOn refuses a job whose nodes a rule keeps from its kernel: only kexec could boot it. The nodes to exclude are
// all of the cluster's, or the job would be placed on others of them.
func (c *Controller) forbiddenOn(job kb.SlurmJob, kernel kb.Ref) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	rule := func(n *kb.Node) int {
		return slices.IndexFunc(c.records.ledger.rules, func(r kb.HardwareRule) bool {
			return r.Kexec == kb.KexecNever && r.Matches(n.Name, n.Hardware, kernel)
		})
	}
	var names []string
	why := ""
	for _, name := range job.Nodes {
		n := c.records.nodes[name]
		if n == nil || n.Runs(kernel) {
			continue
		}
		if i := rule(n); i >= 0 {
			names, why = append(names, name), fmt.Sprintf("%s (%s)", n.Hardware, c.records.ledger.rules[i].Why())
		}
	}
	if len(names) == 0 {
		return nil
	}
	var excluded []string
	for name, n := range c.records.nodes {
		if rule(n) >= 0 {
			excluded = append(excluded, name)
		}
	}
	list := strings.Join(names[:min(len(names), mostOut)], ",")
	if more := len(names) - mostOut; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	advice := fmt.Sprintf("such nodes (scontrol update JobId=%s ExcNodeList=%s)", job.Reference, hostlist.Compress(excluded))
	if len(advice) > mostExcluded {
		advice = fmt.Sprintf("the %d nodes that rules are for (kernelctl hardware rule list) by a feature or partition", len(excluded))
	}
	return fmt.Errorf("kernel %s cannot run on %s: no kexec on %s; exclude %s and release the job: %w", kernel, list, why, advice, kb.ErrFailedPrecondition)
}
