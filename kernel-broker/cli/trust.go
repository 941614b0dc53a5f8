// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
)

// Commands for the nodes' certificates.

func (a *app) nodeTokenCommand() *cobra.Command {
	var ttl time.Duration
	var out string
	c := &cobra.Command{
		Use: "token NAME", Short: "Create the token for a node's first certificate",
		Args: cobra.ExactArgs(1),
		RunE: a.run(func(ctx context.Context, args []string) error { return a.nodeToken(ctx, args[0], ttl, out) }),
	}
	c.Flags().DurationVar(&ttl, "ttl", time.Hour, "lifetime, at most 720h")
	c.Flags().StringVar(&out, "output-file", "", "write it to a `file` that only you can read, and not to the terminal")
	return c
}

func (a *app) nodeToken(ctx context.Context, node string, ttl time.Duration, out string) error {
	response, err := call(ctx, a, api.NewTrustServiceClient, api.TrustServiceClient.CreateNodeToken,
		&api.CreateNodeTokenRequest{Node: node, Ttl: durationpb.New(ttl)})
	if err != nil {
		return err
	}
	until := response.GetExpires().AsTime().Local().Format(time.DateTime)
	if out != "" {
		if err := atomicfile.Write(out, []byte(response.GetToken()+"\n"), 0o600); err != nil {
			return err
		}
		a.say("token of %s, until %s: %s", node, until, out)
		return nil
	}
	a.say("token of %s, until %s", node, until)
	return a.show(response, func(p *page) { p.line("%s", response.GetToken()) })
}

func (a *app) nodeRevokeCommand() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: "revoke NAME", Short: "Void a node's certificates and token, and cut its connections",
		Args: cobra.ExactArgs(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			response, err := call(ctx, a, api.NewTrustServiceClient, api.TrustServiceClient.RevokeNode,
				&api.RevokeNodeRequest{Node: args[0], Reason: reason})
			if err != nil {
				return err
			}
			a.say("%s revoked, %d connections cut", args[0], response.GetCut())
			return nil
		}),
	}
	c.Flags().StringVar(&reason, "reason", "", "`text` for the record")
	return c
}

func (a *app) nodeCertificatesCommand() *cobra.Command {
	return &cobra.Command{
		Use: "certificates [NAME]", Short: "List nodes' certificates, unused tokens and revocations", Args: cobra.MaximumNArgs(1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			request := &api.ListCertificatesRequest{}
			if len(args) == 1 {
				request.Node = args[0]
			}
			response, err := call(ctx, a, api.NewTrustServiceClient, api.TrustServiceClient.ListCertificates, request)
			if err != nil {
				return err
			}
			return a.show(response, func(p *page) { certificateTable(p, response.GetNodes()) })
		}),
	}
}

func certificateTable(p *page, nodes []*api.NodeTrust) {
	p.row("NODE", "IS", "SERIAL", "FROM", "UNTIL", "WHY")
	for _, n := range nodes {
		if v := n.GetRevokedAt(); v != nil {
			p.row(n.GetNode(), "revoked", "", clock(v.AsTime()), "", fmt.Sprintf("%s: %s", n.GetRevokedBy(), n.GetRevokedReason()))
		}
		if t := n.GetTokenExpires(); t != nil {
			p.row(n.GetNode(), "token", "", "", clock(t.AsTime()), "")
		}
		for _, c := range n.GetCertificates() {
			is := "good"
			if c.GetRevoked() {
				is = "void"
			}
			p.row(n.GetNode(), is, c.GetSerial(), clock(c.GetNotBefore().AsTime()), clock(c.GetNotAfter().AsTime()), c.GetFrom())
		}
	}
}

func (a *app) authorityCommand() *cobra.Command {
	show := &cobra.Command{
		Use: "show", Short: "Print the trust anchors for ca.pem on login nodes", Args: cobra.NoArgs,
		RunE: a.run(func(ctx context.Context, _ []string) error {
			response, err := call(ctx, a, api.NewTrustServiceClient, api.TrustServiceClient.GetAuthority, &api.GetAuthorityRequest{})
			if err != nil {
				return err
			}
			a.say("cluster %s, fingerprint %s", response.GetCluster(), response.GetFingerprint())
			return a.show(response, func(p *page) { p.line("%s", strings.TrimSuffix(response.GetAuthorities(), "\n")) })
		}),
	}
	rotate := &cobra.Command{
		Use: "rotate", Short: "Have a new key sign certificates from now on",
		Args: cobra.NoArgs,
		RunE: a.run(func(ctx context.Context, _ []string) error {
			response, err := call(ctx, a, api.NewTrustServiceClient, api.TrustServiceClient.RotateAuthority, &api.RotateAuthorityRequest{})
			if err != nil {
				return err
			}
			a.say("the new authority has the fingerprint %s", response.GetFingerprint())
			return nil
		}),
	}
	return noun("authority", "Certificate authority of the nodes", show, rotate)
}
