// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/kernelbroker/kernelbroker/kernel-broker/api/client"
	"github.com/kernelbroker/kernelbroker/kernel-broker/cli/survey"
	"github.com/kernelbroker/kernelbroker/kernel-broker/doctor"
)

// errFindings ends a command that has printed them.
var errFindings = errors.New("something is wrong: see above")

func (a *app) doctorCommand() *cobra.Command {
	var ignored []string
	var all bool
	o := survey.Options{}
	c := a.command("doctor", "Find what is wrong with this site, as far as this host can see it", cobra.NoArgs,
		func(ctx context.Context, _ []string) error { return a.doctor(ctx, o, doctor.Ignored(ignored), all) })
	f := c.Flags()
	f.StringArrayVar(&ignored, "ignore", nil, "accept the findings of a `check`, or those about one object: CHECK=OBJECT; may be repeated")
	f.BoolVar(&all, "all", false, "show every check, also those that passed and those that are not possible here")
	f.StringVar(&o.BrokerFile, "broker-file", survey.DefaultBrokerFile, "the broker's configuration `file`")
	f.StringVar(&o.AgentFile, "agent-file", survey.DefaultAgentFile, "the agent's configuration `file`")
	names := append([]string(nil), doctor.Names()...)
	_ = c.RegisterFlagCompletionFunc("ignore", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// diagnosis is the result for programs.
type diagnosis struct {
	Host        string           `json:"host"`
	Findings    []doctor.Finding `json:"findings"`
	Passed      int              `json:"passed"`
	NotPossible int              `json:"not_possible"`
	Checks      []doctor.Result  `json:"checks"`
}

func (a *app) doctor(ctx context.Context, o survey.Options, ignored doctor.Ignored, all bool) error {
	if err := ignored.Validate(); err != nil {
		return usageError{err}
	}
	o.Version, o.Config, o.Fetch = a.Version, a.config, a.fetch
	o.Dial = func(settings *client.Config) (*grpc.ClientConn, string, error) {
		dial := a.dial
		if settings != nil && a.conn == nil {
			dial = func() (*grpc.ClientConn, error) { return a.dialBy(*settings) }
		}
		conn, err := dial()
		return conn, cmp.Or(a.address, a.config), err
	}
	site, err := survey.Collect(ctx, o)
	if err != nil {
		return err
	}
	d := diagnose(site.Host, doctor.Examine(site, ignored))
	if err := a.showValue(d, func(p *page) { findingsTable(p, d, all) }); err != nil {
		return err
	}
	if len(d.Findings) > 0 {
		return errFindings
	}
	return nil
}

func diagnose(host string, results []doctor.Result) diagnosis {
	d := diagnosis{Host: host, Findings: []doctor.Finding{}, Checks: results}
	for _, r := range results {
		d.Findings = append(d.Findings, r.Findings...)
		switch r.Outcome {
		case doctor.Passed:
			d.Passed++
		case doctor.NotPossible:
			d.NotPossible++
		case doctor.Found:
		}
	}
	return d
}

func findingsTable(p *page, d diagnosis, all bool) {
	for _, f := range d.Findings {
		p.line("%s: %s (%s)", f.Severity, f.Object, f.Check)
		p.paragraph(belowInset, "%s", f.What)
		p.paragraph(belowInset, "remedy: %s", f.Remedy)
	}
	if all {
		if len(d.Findings) > 0 {
			p.line("")
		}
		p.head("CHECK", "OUTCOME", below+"ABOUT")
		for _, r := range d.Checks {
			about := r.About
			if len(r.Why) > 0 {
				about += "; not possible: " + strings.Join(r.Why, "; ")
			}
			for _, f := range r.Accepted {
				about += "; accepted: " + f.Object
			}
			p.row(r.Check, r.Outcome, about)
		}
	}
	p.sentence("%s", summary(d))
}

func summary(d diagnosis) string {
	findings := "no findings"
	if n := len(d.Findings); n > 0 {
		findings = count(n, "finding")
	}
	text := fmt.Sprintf("%s on %s, %s passed, %d not possible here", findings, d.Host, count(d.Passed, "check"), d.NotPossible)
	if d.NotPossible > 0 {
		text += " (--all says why)"
	}
	return text
}
