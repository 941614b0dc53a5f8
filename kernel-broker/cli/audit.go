// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/audit"
)

// defaultAuditDir is the broker's default directory of the audit log.
const defaultAuditDir = "/var/lib/kernel-broker/audit"

func (a *app) auditCommand() *cobra.Command {
	var after, until string
	verify := a.command("verify [FILE]", "Verify the audit log", cobra.MaximumNArgs(1), func(_ context.Context, args []string) error {
		c := audit.Check{Path: defaultAuditDir}
		if len(args) > 0 {
			c.Path = args[0]
		}
		for _, flag := range []struct {
			text string
			into **audit.Head
		}{{after, &c.After}, {until, &c.Until}} {
			if flag.text == "" {
				continue
			}
			head, err := audit.ParseHead(flag.text)
			if err != nil {
				return usageError{err}
			}
			*flag.into = &head
		}
		return a.auditVerify(c)
	})
	verify.Flags().StringVar(&after, "after", "", "`head` of older files that were moved away")
	verify.Flags().StringVar(&until, "until", "", "`head` that was kept and must be in the record")
	return noun("audit", "The record of decisions", verify)
}

func (a *app) auditVerify(c audit.Check) error {
	if chains, err := audit.Chains(c.Path); err == nil && (len(chains) > 1 || len(chains) == 1 && chains[0] != ".") {
		return a.auditVerifyAll(c)
	}
	report, err := audit.Verify(c)
	if err != nil {
		return err
	}
	if err := a.showValue(report, func(p *page) { auditPage(p, report) }); err != nil {
		return err
	}
	if !report.Sound() {
		return fmt.Errorf("the audit log %s is damaged (%s)", c.Path, count(len(report.Problems), "problem"))
	}
	a.say("the audit log is intact")
	return nil
}

// auditVerifyAll verifies the chains of several brokers, and what they say of each other.
func (a *app) auditVerifyAll(c audit.Check) error {
	if c.After != nil || c.Until != nil {
		return usageError{fmt.Errorf("%s has the chains of several brokers: name the folder of the one that the head is of", c.Path)}
	}
	reports, err := audit.VerifyAll(c.Path)
	if err != nil {
		return err
	}
	problems := 0
	err = a.showValue(reports, func(p *page) {
		for _, name := range slices.Sorted(maps.Keys(reports)) {
			p.row("Chain:", filepath.Join(c.Path, name))
			auditPage(p, reports[name])
		}
	})
	if err != nil {
		return err
	}
	for _, report := range reports {
		problems += len(report.Problems)
	}
	if problems > 0 {
		return fmt.Errorf("the audit log %s is damaged (%s)", c.Path, count(problems, "problem"))
	}
	a.say("the audit log is intact, in %s", count(len(reports), "chain"))
	return nil
}

func auditPage(p *page, report audit.Report) {
	for _, problem := range report.Problems {
		p.line("%s", problem)
	}
	for _, note := range report.Notes {
		p.line("note: %s", note)
	}
	p.row("Records:", fmt.Sprintf("%d from %d on, in %s", report.Records, report.First, count(report.Files, "file")))
	p.row("Time:", fmt.Sprintf("%s to %s", report.Begin.Format(time.RFC3339), report.End.Format(time.RFC3339)))
	p.row("Head:", report.Last)
}
