// SPDX-License-Identifier: Apache-2.0

// Package server is the broker's face: it serves the API of proto/ over gRPC and
// holds everything that is about a call and not about kernels.
//
// Who calls is found out in one place (identity.go), who may call what stands in
// one table (access.go), and errors of the domain become status codes in one
// function (interceptor.go). So a service's methods are short: convert, ask the
// domain, convert back, and return plain domain errors.
//
// Local callers come through a unix socket and are known by their uid, which
// the kernel vouches for. Callers over TCP come through TLS (tls.go): nodes are
// known by their certificates and speak for themselves only (interceptor.go), users by
// what they prove with each call (identity.go).
package server

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	grpchealth "google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/credential"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/controller"
)

const (
	// DefaultMaxArtifactBytes is larger than any kernel or initrd in use.
	DefaultMaxArtifactBytes = 2 << 30

	// The largest answer is a list of all jobs.
	maxSend = 32 << 20

	// maxStreams of one connection, more than our clients open, and maxHeaders of
	// one stream: a credential has about 500 bytes.
	maxStreams = 8
	maxHeaders = 16 << 10

	// readBuffer is what each connection keeps for what it reads: more than an agent's
	// report. Those of writeBuffer are shared by all (gRPC's default), two for a record of TLS.
	readBuffer  = 1 << 10
	writeBuffer = 8 << 10

	// keepaliveTime is longer than an agent may be silent: the broker asks for no sign
	// of life where heartbeats come. A client that is gone without a word is missed
	// after the sum.
	keepaliveTime    = controller.MaxHeartbeat + 10*time.Second
	keepaliveTimeout = 5 * time.Second
	// Clients that ask for signs of life more often are cut off.
	keepaliveFloor = 2 * time.Second
)

// Options of a server.
type Options struct {
	Catalog   Catalog
	Artifacts Artifacts
	// Health checks the broker's dependencies. It must end with its context.
	Health func(context.Context) []Component
	// Version of the broker, as `kernelctl health` shows it.
	Version string
	// Verifier authenticates users over the network; nil: nobody is known there.
	Verifier *credential.Verifier
	// Authorizer decides what users may do, and records it. Without one everybody
	// may use what is published, and root, the broker's own user and Administrators
	// administer it; nothing is recorded.
	Authorizer     *authz.Authorizer
	Administrators []uint32
	// SlurmUsers are the uids that Slurm's hooks run with.
	SlurmUsers []uint32
	// Controllers are where else SlurmUsers' hooks call from: the addresses of
	// backup controllers.
	Controllers []netip.Prefix
	// TLS is asked of callers over the network; nil: it is off, and a node is
	// who says so.
	TLS *TLS
	// PrivilegedAgents refuses agents that dial from a port of 1024 or above,
	// which keeps users of the nodes from posing as a node.
	PrivilegedAgents bool
	// ShowsOthers reports whether Slurm shows a user the jobs of others; nil:
	// everybody sees all of them.
	ShowsOthers func(ctx context.Context, uid uint32) bool
	// MaxArtifactBytes defaults to DefaultMaxArtifactBytes.
	MaxArtifactBytes uint64
	// Unary and Stream are around every call, as what counts them is; nil: nothing is.
	Unary  grpc.UnaryServerInterceptor
	Stream grpc.StreamServerInterceptor
	// Limits defaults to DefaultLimits.
	Limits Limits
	// Log defaults to slog.Default.
	Log *slog.Logger
}

func (o Options) orDefaults() Options {
	o.Log = cmp.Or(o.Log, slog.Default())
	o.MaxArtifactBytes = cmp.Or(o.MaxArtifactBytes, DefaultMaxArtifactBytes)
	o.Limits = cmp.Or(o.Limits, DefaultLimits())
	if o.Unary == nil {
		o.Unary = func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			return handle(ctx, request)
		}
	}
	if o.Stream == nil {
		o.Stream = func(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			return handle(service, stream)
		}
	}
	return o
}

// always are the uids that administer on the broker's host, whatever the policy says.
func (o Options) always() []uint32 {
	return append([]uint32{0, uint32(os.Geteuid())}, o.Administrators...)
}

// NewServer returns a server with the catalog, policy, health and reflection
// services.
// The caller registers AllocationService and NodeService on it, and serves its
// listeners, each through Listener: any unix listener counts as local, any other
// as the network.
// Methods of those services return errors of the domain as they are.
func NewServer(o Options) *Server {
	o = o.orDefaults()
	g := &interceptor{log: o.Log, showsOthers: o.ShowsOthers, verifier: o.Verifier, access: access{
		administrators: o.always(),
		slurmUsers:     slices.Clone(o.SlurmUsers),
		controllers:    slices.Clone(o.Controllers),
		privileged:     o.PrivilegedAgents,
	}}
	g.quotas = newQuotas(o.Limits, g.access.exempt, o.Log)
	if o.Authorizer == nil {
		o.Authorizer = authz.WithoutFile(g.access.administrators, o.Log)
	}
	g.authorizer = o.Authorizer
	network := o.TLS.network(o.Authorizer, o.Limits, o.Log)
	g.access.certificates = network != nil
	server := &Server{interceptor: g, network: network, Server: grpc.NewServer(
		grpc.Creds(peerCredentials{insecure.NewCredentials(), network, g.quotas.memory, g.quotas.isExempt}),
		grpc.StatsHandler(answers{}),
		grpc.ChainUnaryInterceptor(o.Unary, g.unary),
		grpc.ChainStreamInterceptor(o.Stream, g.stream),
		grpc.ConnectionTimeout(o.Limits.Handshake),
		grpc.MaxRecvMsgSize(o.Limits.MessageBytes),
		grpc.MaxSendMsgSize(maxSend),
		grpc.ReadBufferSize(readBuffer),
		grpc.WriteBufferSize(writeBuffer),
		grpc.StaticStreamWindowSize(window),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveTime, Timeout: keepaliveTimeout, MaxConnectionIdle: o.Limits.Idle}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveFloor, PermitWithoutStream: true}),
	)}
	health := &healthOf{probe: o.Health, version: o.Version}
	api.RegisterCatalogServiceServer(server, &catalogService{authorizer: o.Authorizer, catalog: o.Catalog, artifacts: o.Artifacts, maxBytes: o.MaxArtifactBytes})
	api.RegisterHealthServiceServer(server, health)
	api.RegisterPolicyServiceServer(server, &policyService{authorizer: o.Authorizer})
	trust := &trustService{network: network}
	if o.TLS != nil {
		trust.source, trust.registry = o.TLS.Source, o.TLS.Registry
		g.mayEnrol = o.TLS.Registry.MayEnrol
	}
	api.RegisterTrustServiceServer(server, trust)
	grpc_health_v1.RegisterHealthServer(server, &standardHealth{Server: grpchealth.NewServer(), health: health, services: server.GetServiceInfo})
	reflection.Register(server)
	return server
}
