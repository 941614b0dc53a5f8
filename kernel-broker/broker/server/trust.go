// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/x509"
	"fmt"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/pki"
)

// maxReason bounds what is kept of why a node was revoked.
const maxReason = 256

// trustService serves what ca.Registry decides.
type trustService struct {
	api.UnimplementedTrustServiceServer
	tls     *TLS
	network *network
}

var errTLSOff = fmt.Errorf("nodes have no certificates here: TLS is off (tls.mode: none): %w", kb.ErrFailedPrecondition)

// registry returns an error where there is none.
func (s *trustService) registry() (*pki.Registry, error) {
	if s.tls == nil {
		return nil, errTLSOff
	}
	return s.tls.Registry, nil
}

// checks refuse calls of unauthenticated callers that would cause records which
// are never left out: with wrong tokens, and all where TLS is off.
func (s *trustService) checks() map[string]check {
	return map[string]check{
		api.TrustService_Enrol_FullMethodName: func(ctx context.Context, request any) error {
			registry, err := s.registry()
			r, ok := request.(*api.EnrolRequest)
			if err != nil || !ok {
				return err
			}
			return registry.MayEnrol(ctx, r.GetNode(), r.GetSecret(), r.GetCertificateRequest())
		},
		api.TrustService_Renew_FullMethodName: func(context.Context, any) error {
			_, err := s.registry()
			return err
		},
	}
}

// CreateNodeToken implements api.TrustServiceServer.
func (s *trustService) CreateNodeToken(ctx context.Context, r *api.CreateNodeTokenRequest) (*api.CreateNodeTokenResponse, error) {
	registry, err := s.registry()
	if err != nil {
		return nil, err
	}
	token, expires, err := registry.CreateToken(ctx, r.GetNode(), r.GetTtl().AsDuration(), CallerOf(ctx).String())
	if err != nil {
		return nil, err
	}
	return &api.CreateNodeTokenResponse{Token: token.Text(), Expires: convert.TimeToProto(expires)}, nil
}

// Enrol implements api.TrustServiceServer.
func (s *trustService) Enrol(ctx context.Context, r *api.EnrolRequest) (*api.EnrolResponse, error) {
	registry, err := s.registry()
	if err != nil {
		return nil, err
	}
	got, err := registry.Enrol(ctx, r.GetNode(), r.GetSecret(), r.GetCertificateRequest())
	if err != nil {
		return nil, err
	}
	return &api.EnrolResponse{Credentials: credentialsToProto(got)}, nil
}

// Renew implements api.TrustServiceServer.
func (s *trustService) Renew(ctx context.Context, r *api.RenewRequest) (*api.RenewResponse, error) {
	registry, err := s.registry()
	if err != nil {
		return nil, err
	}
	got, err := registry.Renew(ctx, CallerOf(ctx).Node, r.GetCertificateRequest())
	if err != nil {
		return nil, err
	}
	return &api.RenewResponse{Credentials: credentialsToProto(got)}, nil
}

func credentialsToProto(c pki.Credentials) *api.Credentials {
	return &api.Credentials{Chain: raw(c.Chain), Authorities: raw(c.Authorities)}
}

func raw(list []*x509.Certificate) [][]byte {
	var out [][]byte
	for _, c := range list {
		out = append(out, c.Raw)
	}
	return out
}

// RevokeNode implements api.TrustServiceServer.
func (s *trustService) RevokeNode(ctx context.Context, r *api.RevokeNodeRequest) (*api.RevokeNodeResponse, error) {
	registry, err := s.registry()
	if err != nil {
		return nil, err
	}
	reason := convert.Text(r.GetReason())
	if len(reason) > maxReason {
		reason = reason[:maxReason]
	}
	open := s.network.count(r.GetNode())
	if err := registry.Revoke(ctx, r.GetNode(), CallerOf(ctx).String(), reason); err != nil {
		return nil, err
	}
	return &api.RevokeNodeResponse{Cut: uint32(open)}, nil
}

// ListCertificates implements api.TrustServiceServer.
func (s *trustService) ListCertificates(ctx context.Context, r *api.ListCertificatesRequest) (*api.ListCertificatesResponse, error) {
	registry, err := s.registry()
	if err != nil {
		return nil, err
	}
	records, err := registry.List(ctx, r.GetNode())
	if err != nil {
		return nil, err
	}
	response := &api.ListCertificatesResponse{}
	for _, record := range records {
		response.Nodes = append(response.Nodes, nodeTrustToProto(record))
	}
	return response, nil
}

func nodeTrustToProto(record pki.Record) *api.NodeTrust {
	out := &api.NodeTrust{Node: record.Node}
	if t := record.Token; t != nil && t.Key == "" {
		out.TokenExpires = convert.TimeToProto(t.Expires)
	}
	if v := record.Revoked; v != nil {
		out.RevokedAt, out.RevokedBy, out.RevokedReason = convert.TimeToProto(v.At), v.By, v.Reason
	}
	for _, i := range record.Issued {
		out.Certificates = append(out.Certificates, &api.Certificate{
			Serial: i.Serial, NotBefore: convert.TimeToProto(i.NotBefore), NotAfter: convert.TimeToProto(i.NotAfter),
			From: i.From, Revoked: record.Revoked.Voids(i.NotBefore),
		})
	}
	return out
}

// GetAuthority implements api.TrustServiceServer.
func (s *trustService) GetAuthority(context.Context, *api.GetAuthorityRequest) (*api.GetAuthorityResponse, error) {
	registry, err := s.registry()
	if err != nil {
		return nil, err
	}
	list, err := s.tls.Source.Authorities()
	if err != nil {
		return nil, err
	}
	return &api.GetAuthorityResponse{
		Cluster: registry.Cluster(), Authorities: string(mtls.EncodeCertificates(list)),
		Fingerprint: mtls.Fingerprint(list[len(list)-1]),
	}, nil
}

// RotateAuthority implements api.TrustServiceServer.
func (s *trustService) RotateAuthority(ctx context.Context, _ *api.RotateAuthorityRequest) (*api.RotateAuthorityResponse, error) {
	registry, err := s.registry()
	if err != nil {
		return nil, err
	}
	fingerprint, err := registry.Rotate(ctx, CallerOf(ctx).String())
	if err != nil {
		return nil, err
	}
	return &api.RotateAuthorityResponse{Fingerprint: fingerprint}, nil
}
