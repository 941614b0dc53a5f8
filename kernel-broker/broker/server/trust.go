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

// trustService serves what the registry decides. It is called only where TLS is on.
type trustService struct {
	api.UnimplementedTrustServiceServer
	registry *pki.Registry
	source   mtls.Source
	network  *network
}

var errTLSOff = fmt.Errorf("nodes have no certificates here: TLS is off (tls.mode: none): %w", kb.ErrFailedPrecondition)

// CreateNodeToken implements api.TrustServiceServer.
func (s *trustService) CreateNodeToken(ctx context.Context, r *api.CreateNodeTokenRequest) (*api.CreateNodeTokenResponse, error) {
	token, expires, err := s.registry.CreateToken(ctx, r.GetNode(), r.GetTtl().AsDuration(), CallerOf(ctx).String())
	return &api.CreateNodeTokenResponse{Token: token.Text(), Expires: convert.TimeToProto(expires)}, err
}

// Enrol implements api.TrustServiceServer.
func (s *trustService) Enrol(ctx context.Context, r *api.EnrolRequest) (*api.EnrolResponse, error) {
	got, err := s.registry.Enrol(ctx, r.GetNode(), r.GetSecret(), r.GetCertificateRequest())
	return &api.EnrolResponse{Credentials: credentialsToProto(got)}, err
}

// Renew implements api.TrustServiceServer.
func (s *trustService) Renew(ctx context.Context, r *api.RenewRequest) (*api.RenewResponse, error) {
	got, err := s.registry.Renew(ctx, CallerOf(ctx).Node, r.GetCertificateRequest())
	return &api.RenewResponse{Credentials: credentialsToProto(got)}, err
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
	reason := convert.Text(r.GetReason())
	reason = reason[:min(len(reason), maxReason)]
	open := s.network.count(r.GetNode())
	if err := s.registry.Revoke(ctx, r.GetNode(), CallerOf(ctx).String(), reason); err != nil {
		return nil, err
	}
	return &api.RevokeNodeResponse{Cut: uint32(open)}, nil
}

// ListCertificates implements api.TrustServiceServer.
func (s *trustService) ListCertificates(ctx context.Context, r *api.ListCertificatesRequest) (*api.ListCertificatesResponse, error) {
	records, err := s.registry.List(ctx, r.GetNode())
	response := &api.ListCertificatesResponse{}
	for _, record := range records {
		response.Nodes = append(response.Nodes, nodeTrustToProto(record))
	}
	return response, err
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
	list, err := s.source.Authorities()
	if err != nil {
		return nil, err
	}
	return &api.GetAuthorityResponse{
		Cluster: s.registry.Cluster(), Authorities: string(mtls.EncodeCertificates(list)),
		Fingerprint: mtls.Fingerprint(list[len(list)-1]),
	}, nil
}

// RotateAuthority implements api.TrustServiceServer.
func (s *trustService) RotateAuthority(ctx context.Context, _ *api.RotateAuthorityRequest) (*api.RotateAuthorityResponse, error) {
	fingerprint, err := s.registry.Rotate(ctx, CallerOf(ctx).String())
	return &api.RotateAuthorityResponse{Fingerprint: fingerprint}, err
}
