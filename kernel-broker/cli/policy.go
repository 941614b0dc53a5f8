// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/nss"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/safeopen"
)

func (a *app) policyCommand() *cobra.Command {
	r := &api.TestPolicyRequest{}
	var account, partition string
	test := &cobra.Command{
		Use: "test USER ACTION [OBJECT]", Short: "Explain whether a user may do something",
		Args: cobra.RangeArgs(2, 3),
	}
	test.Flags().StringVar(&r.From, "from", "", "`address` of the user (default: the broker's host)")
	test.Flags().StringVar(&account, "account", "", "`name` of the job's account")
	test.Flags().StringVar(&partition, "partition", "", "`name` of the job's partition")
	test.RunE = a.run(func(ctx context.Context, args []string) error {
		r.User, r.Action, r.Object = args[0], args[1], strings.Join(args[2:], "")
		if test.Flags().Changed("account") {
			r.Account = &account
		}
		if test.Flags().Changed("partition") {
			r.Partition = &partition
		}
		return a.policyTest(ctx, r)
	})
	show := a.command("show", "Show the policy in force", cobra.NoArgs, a.policyShow)
	check := a.command("check FILE", "Validate a policy file, and warn of unknown names", cobra.ExactArgs(1), a.policyCheck)
	return noun("policy", "Access policy", test, show, check)
}

func (a *app) policyTest(ctx context.Context, r *api.TestPolicyRequest) error {
	response, err := call(ctx, a, api.NewPolicyServiceClient, api.PolicyServiceClient.TestPolicy, r)
	if err != nil {
		return err
	}
	err = a.show(response, func(p *page) {
		word := either(response.GetAllowed(), "allowed", "denied")
		if response.GetProviso() != "" {
			word += ", " + response.GetProviso()
		}
		p.line("%s", word)
		p.line("%s", response.GetReason())
	})
	if err == nil && !response.GetAllowed() {
		err = errDenied
	}
	return err
}

func (a *app) policyShow(ctx context.Context, _ []string) error {
	response, err := call(ctx, a, api.NewPolicyServiceClient, api.PolicyServiceClient.GetPolicy, &api.GetPolicyRequest{})
	if err != nil {
		return err
	}
	if problem := response.GetProblem(); problem != "" {
		a.say("the file as it is now is NOT in force: %s", problem)
	}
	return a.show(response, func(p *page) {
		if response.GetFile() == "" {
			p.line("There is no policy file: all users may use published profiles; root and the\nbroker's own user administer the broker on its host.")
			return
		}
		p.line("# %s, in force since %s\n# %s\n%s", response.GetFile(), clock(response.GetSince().AsTime()), response.GetDigest(),
			strings.TrimRight(response.GetText(), "\n"))
	})
}

func (a *app) policyCheck(ctx context.Context, args []string) error {
	text, err := safeopen.Read(args[0], authz.MaxBytes, nil)
	if err != nil {
		return err
	}
	policy, err := authz.Parse(args[0], text)
	if err != nil {
		return err
	}
	for _, warning := range a.unknownNames(ctx, policy) {
		a.say("warning: %s", warning)
	}
	a.say("%s is a policy", args[0])
	return nil
}

// unknownNames warns of what the policy names and nothing and nobody has. A policy may be checked before there is a broker.
func (a *app) unknownNames(ctx context.Context, policy *authz.Policy) []string {
	var warnings []string
	if len(policy.Profiles) > 0 {
		response, err := call(ctx, a, api.NewCatalogServiceClient, api.CatalogServiceClient.ListProfiles, &api.ListProfilesRequest{})
		if err == nil {
			var registered []string
			for _, p := range response.GetProfiles() {
				registered = append(registered, p.GetName())
			}
			warnings = policy.UnknownProfiles(registered)
		} else {
			_, why := a.explain(err)
			warnings = append(warnings, "names of profiles are not checked: "+why)
		}
	}
	return append(warnings, policy.UnknownPeople(ctx, nss.New())...)
}

// errDenied ends a command that has printed everything already.
var errDenied = fmt.Errorf("denied: %w", kb.ErrDenied)
