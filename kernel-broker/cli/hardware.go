// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/rounded"
)

func (a *app) hardwareCommand() *cobra.Command {
	list := a.command("list", "List how kexec works, by hardware and kernel", cobra.NoArgs, a.hardwareList)
	return noun("hardware", "How kexec works on the nodes' hardware", list, a.ruleCommand())
}

func (a *app) hardware(ctx context.Context) (*api.ListHardwareResponse, error) {
	return call(ctx, a, api.NewHardwareServiceClient, api.HardwareServiceClient.ListHardware, &api.ListHardwareRequest{})
}

func (a *app) hardwareList(ctx context.Context, _ []string) error {
	response, err := a.hardware(ctx)
	if err != nil {
		return err
	}
	rows := response.GetRows()
	return a.show(response, func(p *page) {
		if len(rows) == 0 {
			a.say("no boots yet: the ledger begins with the first switch")
		} else {
			hardwareTable(p, rows)
		}
		if len(response.GetRules()) > 0 {
			p.line("\nRules")
			ruleTable(p, response.GetRules())
		}
	})
}

func hardwareTable(p *page, rows []*api.HardwareRow) {
	p.head("BOARD", wide+"FIRMWARE", wide+"NETWORK", "KERNEL", "WAY", "TRIES", "OK", wide+"SHUTDOWN", wide+"START", "TOTAL", "P95", wide+zoned("LAST", newest(rows, func(r *api.HardwareRow) time.Time { return r.GetLast().AsTime() })), below+"LAST FAILURE")
	for _, r := range rows {
		h, times := r.GetHardware(), map[string]*api.PhaseTimes{}
		for _, phase := range r.GetPhases() {
			times[phase.GetPhase()] = phase
		}
		median := func(phase string) string {
			if times[phase] == nil {
				return ""
			}
			return rounded.Time(times[phase].GetMedian().AsDuration())
		}
		p95 := ""
		if total := times["total"]; total != nil {
			p95 = rounded.Time(total.GetP95().AsDuration())
		}
		failure := ""
		if r.GetFailedNode() != "" {
			failure = fmt.Sprintf("%s, %s: %s", r.GetFailedNode(), clock(r.GetFailedAt().AsTime()), r.GetFailedCause())
		}
		p.row(cmp.Or(h.GetBoard(), "unknown"), h.GetFirmware(), h.GetNic(), kernelRef(r.GetProfile(), r.GetVersion()), convert.Word(r.GetWay()),
			r.GetTries(), r.GetSuccesses(), median("shutdown"), median("start"), median("total"), p95, minute(r.GetLast().AsTime()), failure)
	}
}

func ruleTable(p *page, rules []*api.HardwareRule) {
	p.head("RULE", "FOR", "KEXEC", "RETURN BY", zoned("SET", newest(rules, func(r *api.HardwareRule) time.Time { return r.GetAt().AsTime() })), "BY", below+"REASON")
	for _, r := range rules {
		kexec := convert.Word(r.GetKexec())
		if r.GetOnce() {
			kexec += ", once"
		}
		p.row(r.GetName(), ruleScope(r), kexec, convert.Word(r.GetBy()), minute(r.GetAt().AsTime()), r.GetAuthor(), r.GetReason())
	}
}

// ruleScope is what a rule is for, as the flags that set it.
func ruleScope(r *api.HardwareRule) string {
	var parts []string
	for _, part := range [][2]string{{"node", r.GetNode()}, {"board", r.GetBoard()}, {"firmware", r.GetFirmware()}, {"network", r.GetNic()}, {"kernel", r.GetKernel()}} {
		if part[1] != "" {
			parts = append(parts, part[0]+"="+part[1])
		}
	}
	return strings.Join(parts, " ")
}

func (a *app) ruleCommand() *cobra.Command {
	list := a.command("list", "List the rules", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		response, err := a.hardware(ctx)
		if err != nil {
			return err
		}
		rules := response.GetRules()
		return showList(a, "rules", rules, a.orNone(len(rules), "no rules: kexec is used everywhere", func(p *page) { ruleTable(p, rules) }))
	})
	remove := a.command("remove NAME", "Remove a rule", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		_, err := call(ctx, a, api.NewHardwareServiceClient, api.HardwareServiceClient.RemoveHardwareRule, &api.RemoveHardwareRuleRequest{Name: args[0]})
		if err == nil {
			a.say("rule %s removed", args[0])
		}
		return err
	})
	return noun("rule", "Where kexec is not used", list, a.ruleSetCommand(), a.careful(remove, a.removePreview))
}

func (a *app) ruleSetCommand() *cobra.Command {
	rule := kb.HardwareRule{}
	var kexec, by string
	c := a.command("set NAME", "Set a rule on where kexec is not used", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		rule.Name, rule.Kexec, rule.By, rule.At = args[0], kb.RuleKexec(kexec), kb.Way(by), time.Time{}
		if err := rule.Validate(); err != nil {
			return usageError{err}
		}
		response, err := call(ctx, a, api.NewHardwareServiceClient, api.HardwareServiceClient.SetHardwareRule,
			&api.SetHardwareRuleRequest{Rule: convert.RuleToProto(rule)})
		if err != nil {
			return err
		}
		return a.show(response.GetRule(), func(p *page) { ruleTable(p, []*api.HardwareRule{response.GetRule()}) })
	})
	flags := c.Flags()
	flags.StringVar(&rule.Board, "board", "", "`pattern` of boards as kernelctl hardware list prints them; * is any text")
	flags.StringVar(&rule.Firmware, "firmware", "", "`pattern` of firmware versions")
	flags.StringVar(&rule.NIC, "network", "", "`pattern` of network adapters")
	flags.StringVar(&rule.Kernel, "kernel", "", "`profile`, or one version of it as NAME@VERSION")
	flags.StringVar(&rule.Node, "node", "", "`name` of a node")
	flags.StringVar(&kexec, "kexec", string(kb.KexecNoReturn), "never: no kexec at all, so that jobs with a profile are refused there; no-return: none back to stock")
	flags.StringVar(&by, "by", string(kb.WayReboot), "how such nodes return: reboot, by their own boot loader, or reset, by reset_command")
	flags.BoolVar(&rule.Once, "once", false, "for the next return of --node only")
	flags.StringVar(&rule.Reason, "reason", "", "`text` for those who meet the rule")
	return c
}
