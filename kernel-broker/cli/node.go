// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/hostlist"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/rounded"
)

func (a *app) nodeCommand() *cobra.Command {
	list := a.command("list", "List the nodes and the kernels they run", cobra.NoArgs, a.nodeList)
	show := a.command("show NAME", "Show a node", cobra.ExactArgs(1), a.nodeShow)
	return noun("node", "Nodes and their kernels", list, show, a.nodeQualifyCommand(),
		a.nodeTokenCommand(), a.nodeRevokeCommand(), a.nodeCertificatesCommand())
}

func (a *app) nodeList(ctx context.Context, _ []string) error {
	response, err := call(ctx, a, api.NewNodeServiceClient, api.NodeServiceClient.ListNodes, &api.ListNodesRequest{})
	if err != nil {
		return err
	}
	nodes := response.GetNodes()
	return a.show(response, a.orNone(len(nodes), "no nodes: no agent has connected yet", func(p *page) {
		nodeRows(p, nodes)
	}))
}

func (a *app) nodeShow(ctx context.Context, args []string) error {
	response, err := call(ctx, a, api.NewNodeServiceClient, api.NodeServiceClient.GetNode, &api.GetNodeRequest{Name: args[0]})
	if err != nil {
		return err
	}
	n := response.GetNode()
	var day []*api.Event
	if a.output == outputTable {
		if day, err = a.lastDay(ctx, args[0]); err != nil {
			return err
		}
	}
	return a.show(n, func(p *page) {
		p.row("Node:", n.GetName())
		p.row("Phase:", nodePhase(n))
		p.field("Cause:", n.GetCause())
		p.row("Slurm:", n.GetSlurmState())
		p.field("Slurm's reason:", n.GetSlurmReason())
		p.row("Runs:", kernelRef(n.GetRunningProfile(), n.GetRunningVersion()))
		p.row("Proven:", either(n.GetAttested(), "yes", "no"))
		p.row("Wanted:", kernelRef(n.GetDesiredProfile(), n.GetDesiredVersion()))
		p.row("Release:", n.GetRelease())
		p.row("Build id:", n.GetBuildId())
		p.row("Boot id:", n.GetBootId())
		p.row("Job:", numberOrNone(n.GetJobId()))
		p.row("Agent:", either(n.GetConnected(), "connected", "away"))
		p.row("Last seen:", clock(n.GetLastSeen().AsTime()))
		p.row("Kexecs:", n.GetKexecs())
		i := n.GetInventory()
		p.row("Architecture:", i.GetArchitecture())
		p.row("Memory:", rounded.Size(i.GetMemoryMib()<<20))
		p.row("CPUs:", i.GetCpus())
		if i.GetCores() > 0 {
			p.row("Cores:", i.GetCores())
		}
		if i.GetApplicationCpus() != "" {
			p.row("Application CPUs:", i.GetApplicationCpus())
		}
		if h := n.GetHardware(); h != nil {
			p.row("Board:", h.GetBoard())
			p.row("Firmware:", h.GetFirmware())
			p.row("Network:", h.GetNic())
		}
		p.row("Root:", i.GetRootDevice()+" "+i.GetRootFilesystem())
		p.line("Drivers in use:")
		p.paragraph(2, "%s", strings.Join(i.GetDrivers(), " "))
		if len(day) > 0 {
			p.line("Last day (kernelctl events --node %s has more):", n.GetName())
			p.head("TIME", "EVENT")
		}
		for _, e := range day {
			p.row(clock(e.GetAt().AsTime()), sentence(e))
		}
	})
}

func nodePhase(n *api.Node) string { return convert.Word(n.GetPhase()) }

// Commands for the nodes' certificates.

func (a *app) nodeTokenCommand() *cobra.Command {
	var ttl time.Duration
	var file, dir string
	c := a.command("token NODES", "Create the tokens for nodes' first certificates", cobra.MinimumNArgs(1),
		func(ctx context.Context, args []string) error { return a.nodeToken(ctx, args, ttl, file, dir) })
	c.Flags().DurationVar(&ttl, "ttl", time.Hour, "lifetime, at most 720h")
	c.Flags().StringVar(&file, "output-file", "", "write one node's token to a `file` that only you can read, and not to the terminal")
	c.Flags().StringVar(&dir, "output-dir", "", "write each token to a file with the node's name in this `folder`, and not to the terminal")
	return c
}

// nodeToken makes the tokens in the order of the lists; one that fails ends it. What was made before is printed: nobody
// else knows a token.
func (a *app) nodeToken(ctx context.Context, lists []string, ttl time.Duration, file, dir string) error {
	nodes, err := hostlist.Expand(strings.Join(lists, ","))
	if err != nil {
		return err
	}
	if file != "" && dir != "" {
		return usageError{errors.New("--output-file and --output-dir exclude each other")}
	}
	if file != "" && len(nodes) > 1 {
		return usageError{fmt.Errorf("--output-file is for one node, and these are %d: use --output-dir", len(nodes))}
	}
	var tokens []*api.CreateNodeTokenResponse
	for _, node := range nodes {
		path := file
		if dir != "" {
			path = filepath.Join(dir, node)
		}
		var token *api.CreateNodeTokenResponse
		if token, err = a.makeToken(ctx, node, ttl, path); err != nil {
			break
		}
		tokens = append(tokens, token)
	}
	if file != "" || dir != "" || err != nil && len(tokens) == 0 {
		return err
	}
	if shown := a.showTokens(tokens, len(nodes) > 1); shown != nil {
		return errors.Join(err, shown)
	}
	return err
}

// makeToken has the broker make a node's token, and writes it to the file at path; an empty path is no file.
func (a *app) makeToken(ctx context.Context, node string, ttl time.Duration, path string) (*api.CreateNodeTokenResponse, error) {
	token, err := call(ctx, a, api.NewTrustServiceClient, api.TrustServiceClient.CreateNodeToken,
		&api.CreateNodeTokenRequest{Node: node, Ttl: durationpb.New(ttl)})
	if err != nil {
		return nil, err
	}
	until := token.GetExpires().AsTime().Local().Format(time.DateTime)
	if path == "" {
		a.say("token of %s, until %s", node, until)
		return token, nil
	}
	if err := atomicfile.Write(path, []byte(token.GetToken()+"\n"), 0o600); err != nil {
		return nil, err
	}
	a.say("token of %s, until %s: %s", node, until, path)
	return token, nil
}

func (a *app) showTokens(tokens []*api.CreateNodeTokenResponse, list bool) error {
	print := func(p *page) {
		for _, token := range tokens {
			p.line("%s", token.GetToken())
		}
	}
	if list {
		return showList(a, "tokens", tokens, print)
	}
	return a.show(tokens[0], print)
}

func (a *app) nodeRevokeCommand() *cobra.Command {
	var reason string
	c := a.command("revoke NAME", "Void a node's certificates and token, and cut its connections", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		response, err := call(ctx, a, api.NewTrustServiceClient, api.TrustServiceClient.RevokeNode,
			&api.RevokeNodeRequest{Node: args[0], Reason: reason})
		if err != nil {
			return err
		}
		a.say("%s revoked, %d connections cut", args[0], response.GetCut())
		return nil
	})
	c.Flags().StringVar(&reason, "reason", "", "`text` for the record")
	return a.careful(c, a.revokePreview)
}

func (a *app) nodeCertificatesCommand() *cobra.Command {
	return a.command("certificates [NAME]", "List nodes' certificates, unused tokens and revocations", cobra.MaximumNArgs(1), func(ctx context.Context, args []string) error {
		request := &api.ListCertificatesRequest{}
		if len(args) == 1 {
			request.Node = args[0]
		}
		response, err := call(ctx, a, api.NewTrustServiceClient, api.TrustServiceClient.ListCertificates, request)
		if err != nil {
			return err
		}
		return a.show(response, func(p *page) { certificateTable(p, response.GetNodes()) })
	})
}

func certificateTable(p *page, nodes []*api.NodeTrust) {
	p.head("NODE", "IS", wide+"SERIAL", zoned("FROM", certified(nodes)), zoned("UNTIL", certified(nodes)), below+"WHY")
	for _, n := range nodes {
		if v := n.GetRevokedAt(); v != nil {
			p.row(n.GetNode(), "revoked", "", minute(v.AsTime()), "", fmt.Sprintf("%s: %s", n.GetRevokedBy(), n.GetRevokedReason()))
		}
		if t := n.GetTokenExpires(); t != nil {
			p.row(n.GetNode(), "token", "", "", minute(t.AsTime()), "")
		}
		for _, c := range n.GetCertificates() {
			p.row(n.GetNode(), either(c.GetRevoked(), "void", "good"), c.GetSerial(), minute(c.GetNotBefore().AsTime()), minute(c.GetNotAfter().AsTime()), c.GetFrom())
		}
	}
}

// certified is when the newest certificate, token or revocation was made.
func certified(nodes []*api.NodeTrust) (newest time.Time) {
	for _, n := range nodes {
		times := []*timestamppb.Timestamp{n.GetRevokedAt(), n.GetTokenExpires()}
		for _, c := range n.GetCertificates() {
			times = append(times, c.GetNotBefore())
		}
		for _, t := range times {
			if t != nil && t.AsTime().After(newest) {
				newest = t.AsTime()
			}
		}
	}
	return newest
}

func (a *app) authorityCommand() *cobra.Command {
	show := a.command("show", "Print the trust anchors for ca.pem on login nodes", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		response, err := call(ctx, a, api.NewTrustServiceClient, api.TrustServiceClient.GetAuthority, &api.GetAuthorityRequest{})
		if err != nil {
			return err
		}
		a.say("cluster %s, fingerprint %s", response.GetCluster(), response.GetFingerprint())
		return a.show(response, func(p *page) { p.line("%s", strings.TrimSuffix(response.GetAuthorities(), "\n")) })
	})
	rotate := a.command("rotate", "Have a new key sign certificates from now on", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		response, err := call(ctx, a, api.NewTrustServiceClient, api.TrustServiceClient.RotateAuthority, &api.RotateAuthorityRequest{})
		if err != nil {
			return err
		}
		a.say("the new authority has the fingerprint %s", response.GetFingerprint())
		return nil
	})
	return noun("authority", "Certificate authority of the nodes", show, a.careful(rotate, a.rotatePreview))
}
