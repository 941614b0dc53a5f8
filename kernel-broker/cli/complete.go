// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/hostlist"
)

// completionLimit bounds the questions of one press of Tab.
const completionLimit = 2 * time.Second

// offer gets the words that may stand in a place, each with what it is after a tab.
type offer func(ctx context.Context, a *app) ([]string, error)

// places are the arguments of commands that name something of the broker's. An offer at the end is for all further ones if
// the command takes several.
var places = map[string][]offer{
	"kernelctl job show":             {offerJobs},
	"kernelctl job wait":             {offerJobs},
	"kernelctl job why":              {offerJobs},
	"kernelctl run watch":            {offerJobs},
	"kernelctl run show":             {offerRuns},
	"kernelctl run report":           {offerRuns},
	"kernelctl run cancel":           {offerRuns},
	"kernelctl run diff":             {offerRuns, offerRuns},
	"kernelctl run request":          {offerApplications},
	"kernelctl node show":            {offerNodes},
	"kernelctl node qualify":         {offerNodes},
	"kernelctl node revoke":          {offerNodes},
	"kernelctl node certificates":    {offerNodes},
	"kernelctl node token":           {offerNodes},
	"kernelctl profile show":         {offerProfiles},
	"kernelctl profile rollback":     {offerProfiles},
	"kernelctl profile check":        {offerKernels},
	"kernelctl profile promote":      {offerKernels},
	"kernelctl profile quarantine":   {offerKernels},
	"kernelctl profile release":      {offerKernels},
	"kernelctl profile retire":       {offerKernels},
	"kernelctl kernel show":          {offerKernels},
	"kernelctl kernel sign":          {offerKernels},
	"kernelctl policy test":          {nil, offerActions, offerKernels},
	"kernelctl hardware rule remove": {offerRules},
}

// flagPlaces are flags of the same kind, by command and name.
var flagPlaces = map[[2]string]offer{
	{"kernelctl job list", "profile"}:            offerKernels,
	{"kernelctl job list", "node"}:               offerNodes,
	{"kernelctl job list", "state"}:              func(context.Context, *app) ([]string, error) { return phases(), nil },
	{"kernelctl run request", "profile"}:         offerProfiles,
	{"kernelctl kernel register", "profile"}:     offerProfiles,
	{"kernelctl node qualify", "kernel-profile"}: offerKernels,
	{"kernelctl hardware rule set", "node"}:      offerNodes,
	{"kernelctl hardware rule set", "kernel"}:    offerKernels,
}

// addCompletions has the broker asked for the names that a command takes. A command that takes files completes files, and
// one that takes nothing completes nothing.
func (a *app) addCompletions(root *cobra.Command) {
	for path, offers := range places {
		c := a.mustFind(root, path)
		c.ValidArgsFunction = func(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			if len(args) >= len(offers) || offers[len(args)] == nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return a.complete(c.Context(), offers[len(args)], word)
		}
	}
	for place, o := range flagPlaces {
		c := a.mustFind(root, place[0])
		err := c.RegisterFlagCompletionFunc(place[1], func(c *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
			return a.complete(c.Context(), o, word)
		})
		if err != nil {
			panic(err) // the table names a flag that is not there, and each test reads it
		}
	}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Runnable() && !c.HasSubCommands() && c.ValidArgsFunction == nil && !strings.Contains(c.Use, " ") {
			c.ValidArgsFunction = cobra.NoFileCompletions
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
}

func (a *app) mustFind(root *cobra.Command, path string) *cobra.Command {
	c, _, err := root.Find(strings.Fields(path)[1:])
	if err != nil || c.CommandPath() != path {
		panic(path + " is no command") // the tables are part of the program, and each test reads them
	}
	return c
}

// complete says nothing of what fails: somebody is typing.
func (a *app) complete(ctx context.Context, o offer, word string) ([]string, cobra.ShellCompDirective) {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionLimit)
	defer cancel()
	words, err := o(ctx, a)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	words = slices.DeleteFunc(words, func(w string) bool { return !strings.HasPrefix(w, word) || plain(w) != w || strings.Contains(w, "\n") })
	return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

func offerJobs(ctx context.Context, a *app) (words []string, err error) {
	jobs, err := a.jobs(ctx, &api.ListJobsRequest{Limit: 50, Waiting: true})
	for _, j := range jobs {
		words = append(words, fmt.Sprintf("%s\t%s %s, %s", convert.JobName(j), j.GetUser(), kernelRef(j.GetProfile(), j.GetVersion()), jobPhase(j)))
	}
	slices.Sort(words)
	return slices.Compact(words), err
}

func offerRuns(ctx context.Context, a *app) (words []string, err error) {
	response, err := call(ctx, a, api.NewRunServiceClient, api.RunServiceClient.ListRuns, &api.ListRunsRequest{Limit: 50})
	for _, r := range response.GetRuns() {
		words = append(words, fmt.Sprintf("%d\tjob %s, %s", r.GetId(), runJob(r), runState(r)))
	}
	return words, err
}

func offerNodes(ctx context.Context, a *app) (words []string, err error) {
	response, err := call(ctx, a, api.NewNodeServiceClient, api.NodeServiceClient.ListNodes, &api.ListNodesRequest{})
	for _, n := range response.GetNodes() {
		words = append(words, n.GetName())
	}
	slices.SortFunc(words, hostlist.Natural)
	return words, err
}

func offerProfiles(ctx context.Context, a *app) (words []string, err error) {
	profiles, err := a.profiles(ctx)
	for _, p := range profiles {
		words = append(words, p.GetName()+"\t"+p.GetDescription())
	}
	return words, err
}

// offerKernels offers profiles, and their versions.
func offerKernels(ctx context.Context, a *app) (words []string, err error) {
	profiles, err := a.profiles(ctx)
	for _, p := range profiles {
		words = append(words, p.GetName()+"\t"+p.GetDescription())
		for _, v := range p.GetVersions() {
			words = append(words, refOf(v)+"\t"+convert.VersionState(v))
		}
	}
	return words, err
}

func offerApplications(ctx context.Context, a *app) (words []string, err error) {
	profiles, err := a.profiles(ctx)
	for _, p := range profiles {
		if p.GetName() != kb.StockProfile {
			words = append(words, p.GetApplication())
		}
	}
	slices.Sort(words)
	return slices.Compact(words), err
}

func offerRules(ctx context.Context, a *app) (words []string, err error) {
	response, err := a.hardware(ctx)
	for _, r := range response.GetRules() {
		words = append(words, r.GetName()+"\t"+ruleScope(r))
	}
	return words, err
}

func offerActions(context.Context, *app) ([]string, error) {
	var words []string
	for _, action := range authz.Actions {
		words = append(words, string(action))
	}
	return words, nil
}
