// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/credential"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/retryinfo"
)

// grace is what a stream's handler gets, once its time is up or its client
// gone, to end with an error of its own.
const grace = 100 * time.Millisecond

// interceptor is what every call passes: authentication, quotas, authorization, the
// record, the log, and the making of status codes.
type interceptor struct {
	access     access
	verifier   *credential.Verifier
	authorizer *authz.Authorizer
	quotas     *quotas
	// mayEnrol returns why a token would not count, and changes nothing; nil where TLS is off.
	mayEnrol func(ctx context.Context, node, secret string, request []byte) error
	// showsOthers is Options.ShowsOthers.
	showsOthers func(ctx context.Context, uid uint32) bool
	log         *slog.Logger
}

func (g *interceptor) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (response any, err error) {
	err = g.pass(ctx, info.FullMethod, request, func(ctx context.Context, c *call) error {
		if err := validate(request); err != nil {
			return err
		}
		if err := checkSender(ctx, request); err != nil {
			return err
		}
		done, err := g.quotas.listing(ctx, info.FullMethod, c.caller)
		if err != nil {
			return err
		}
		defer done()
		response, err = handle(ctx, request)
		return err
	})
	if err != nil {
		return nil, err
	}
	return response, nil
}

func (g *interceptor) stream(server any, s grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	return g.pass(s.Context(), info.FullMethod, nil, func(ctx context.Context, c *call) error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		late := time.AfterFunc(g.quotas.limits.Arrival, func() { cancel(errLate) })
		defer late.Stop()
		checked := &callStream{ServerStream: s, ctx: ctx, binds: c.binds, late: late}
		if info.FullMethod == api.NodeService_Connect_FullMethodName {
			checked.pace = rate.NewLimiter(rate.Limit(g.quotas.limits.NodeRate), g.quotas.limits.NodeBurst)
		}
		defer func() { c.decision.Object = checked.object() }()
		run := func() error {
			return g.catch(info.FullMethod, func() error { return checked.ended(handle(server, checked)) })
		}
		if rules[info.FullMethod].limit == forever {
			return run() // each agent has such a stream, which sees to the time of its first message
		}
		// A handler that waits for its client does not see the time limit.
		// Returning from here ends the stream and with it that wait.
		ended := make(chan error, 1)
		go func() { ended <- run() }()
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
		}
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				return err
			}
		case <-time.After(grace):
		}
		return context.Cause(ctx)
	})
}

// pass runs one call and returns a status error or nil. The request is nil for
// streams, whose first message is yet to come.
func (g *interceptor) pass(ctx context.Context, method string, request any, handle func(context.Context, *call) error) error {
	begin := time.Now()
	if limit := rules[method].limit; limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	c, err := g.admit(ctx, method, request)
	if err == nil {
		defer c.done()
		ctx = g.withVisibility(withCaller(ctx, c.caller), c.caller)
		err = g.catch(method, func() error { return handle(ctx, c) })
		if missed := c.note(err); missed != nil {
			// What was done is done, and its decision is on record.
			g.log.Error("outcome not recorded", "method", method, "caller", c.caller.String(), "error", missed)
		}
	}
	if errors.Is(err, errLate) { // as many as somebody likes
		c.quiet = g.quotas.logged.Take(c.caller.holder()) > 0
	}
	err = statusOf(err)
	if !c.quiet {
		g.note(method, c.caller, time.Since(begin), err)
	}
	return err
}

// catch turns a panic into an error, so that one bad call does not end the
// broker in the middle of everybody's switches.
func (g *interceptor) catch(method string, call func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			g.log.Error("call panicked", "method", method, "cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
			err = status.Error(codes.Internal, "internal error, see the broker's log")
		}
	}()
	return call()
}

// note logs what a person would want to see: faults of the broker as errors,
// refusals as warnings, the rest for debugging.
func (g *interceptor) note(method string, caller Caller, took time.Duration, err error) {
	code := status.Code(err)
	level := slog.LevelDebug
	switch code {
	case codes.Internal, codes.Unknown, codes.DataLoss:
		level = slog.LevelError
	case codes.PermissionDenied, codes.Unauthenticated, codes.Unavailable, codes.ResourceExhausted, codes.DeadlineExceeded:
		level = slog.LevelWarn
	}
	fields := []any{"method", method, "caller", caller.String(), "code", code.String(), "took", took.Round(time.Microsecond).String()}
	if err != nil {
		fields = append(fields, "error", status.Convert(err).Message())
	}
	g.log.Log(context.Background(), level, "call", fields...)
}

// checkSender compares the node that a message names as its sender with the caller's certificate. Callers without one
// pass: access decides whether they may call.
func checkSender(ctx context.Context, message any) error {
	own := CallerOf(ctx).Node.Name
	if own.IsZero() {
		return nil
	}
	sender := own.Name
	switch m := message.(type) {
	case *api.ConnectRequest:
		if m.GetHello() != nil {
			sender = m.GetHello().GetNode()
		}
	case *api.UploadRunFileRequest:
		if m.GetFile() != nil {
			sender = m.GetNode()
		}
	case *api.GetRunFileRequest:
		sender = m.GetNode()
	case *api.DeliverRunRequest:
		sender = m.GetNode()
	}
	if sender != own.Name {
		return fmt.Errorf("node %q speaks for node %q: %w", own.Name, sender, kb.ErrDenied)
	}
	return nil
}

// statusCodes is the one place where errors of the domain get their codes. The
// first that fits counts.
var statusCodes = []struct {
	err  error
	code codes.Code
}{
	{kb.ErrInvalid, codes.InvalidArgument},
	{kb.ErrNotFound, codes.NotFound},
	{kb.ErrExists, codes.AlreadyExists},
	{kb.ErrQuarantined, codes.FailedPrecondition},
	{kb.ErrRetired, codes.FailedPrecondition},
	{kb.ErrFailedPrecondition, codes.FailedPrecondition},
	{kb.ErrDenied, codes.PermissionDenied},
	{kb.ErrUnauthenticated, codes.Unauthenticated},
	{kb.ErrUnavailable, codes.Unavailable},
	{kb.ErrExhausted, codes.ResourceExhausted},
	{context.DeadlineExceeded, codes.DeadlineExceeded},
	{context.Canceled, codes.Canceled},
}

// statusOf makes what goes over the wire of an error. The text stays: it names
// the object, and those who may call are the ones it is for. An error that is
// a status already stays as it is; one that nobody foresaw is Internal.
func statusOf(err error) error {
	if err == nil {
		return nil
	}
	var retry *kb.RetryableError
	if errors.As(err, &retry) && (errors.Is(err, kb.ErrExhausted) || errors.Is(err, kb.ErrUnavailable)) {
		return retryinfo.Error(retry.Wait, err.Error())
	}
	var made interface{ GRPCStatus() *status.Status }
	if errors.As(err, &made) {
		return status.Error(made.GRPCStatus().Code(), made.GRPCStatus().Message())
	}
	for _, known := range statusCodes {
		if errors.Is(err, known.err) {
			return status.Error(known.code, err.Error())
		}
	}
	return status.Error(codes.Internal, err.Error())
}

const (
	// maxNodes of one request, as many as Slurm has in a cluster.
	maxNodes = 65536
	// defaultListed and maxListed jobs or runs are in an answer.
	defaultListed = 100
	maxListed     = 1000
)

// validate refuses what no domain object can be made of, before any service
// sees it. Requests that are not here have nothing to check.
func validate(request any) error {
	switch r := request.(type) {
	case *api.GetProfileRequest, *api.ReleaseQuarantineRequest, *api.RetireProfileRequest, *api.PromoteVersionRequest,
		*api.QuarantineVersionRequest, *api.SignVersionRequest:
		return kb.ValidateProfileName(r.(interface{ GetName() string }).GetName())
	case *api.GetArtifactRequest, *api.FetchArtifactRequest:
		return kb.ValidateDigest(r.(interface{ GetDigest() string }).GetDigest())
	case *api.ReleaseJobRequest, *api.GetJobRequest, *api.GetJobWaitRequest, *api.BeginRunRequest:
		return validateJob(r.(interface{ GetJobId() uint32 }).GetJobId())
	case *api.CreateNodeTokenRequest, *api.RevokeNodeRequest, *api.DeliverRunRequest:
		return kb.ValidateNodeName(r.(interface{ GetNode() string }).GetNode())
	case *api.CheckProfileRequest:
		_, err := kb.ParseRef(r.GetProfile())
		return err
	case *api.ApplyProfileRequest:
		if r.GetProfile() == nil {
			return fmt.Errorf("request has no profile: %w", kb.ErrInvalid)
		}
		return kb.ValidateProfileName(r.GetProfile().GetName())
	case *api.EnsureKernelRequest:
		_, err := kb.ParseRef(r.GetProfile())
		return cmp.Or(validateJob(r.GetJobId()), err, validateNodes(r.GetNodes()))
	case *api.NoteRebootRequest:
		return validateNodes(r.GetNodes())
	case *api.ListJobsRequest, *api.ListRunsRequest:
		if limit := r.(interface{ GetLimit() uint32 }).GetLimit(); limit > maxListed {
			return fmt.Errorf("limit %d, at most %d can be listed: %w", limit, maxListed, kb.ErrInvalid)
		}
	case *api.ListEventsRequest:
		if r.GetLimit() > maxEvents {
			return fmt.Errorf("limit %d, at most %d can be listed: %w", r.GetLimit(), maxEvents, kb.ErrInvalid)
		}
		return convert.EventFilterFromProto(r.GetFilter()).Validate()
	case *api.WatchEventsRequest:
		return convert.EventFilterFromProto(r.GetFilter()).Validate()
	case *api.SetHardwareRuleRequest:
		return convert.RuleFromProto(r.GetRule()).Validate()
	case *api.RemoveHardwareRuleRequest:
		return kb.ValidateProfileName(r.GetName())
	case *api.GetNodeRequest:
		return kb.ValidateNodeName(r.GetName())
	case *api.EnrolRequest:
		return errors.Join(kb.ValidateNodeName(r.GetNode()), mtls.ValidateSecret(r.GetSecret()))
	case *api.ListCertificatesRequest:
		if r.GetNode() != "" {
			return kb.ValidateNodeName(r.GetNode())
		}
	case *api.ConnectRequest:
		if r.GetMessage() == nil {
			return fmt.Errorf("agent's message is empty: %w", kb.ErrInvalid)
		}
		if r.GetHello() != nil {
			return kb.ValidateNodeName(r.GetHello().GetNode())
		}
	case *api.RequestRunRequest:
		if r.GetRequestId() != "" {
			return kb.ValidateRequestID(r.GetRequestId())
		}
	case *api.UploadRunFileRequest:
		if f := r.GetFile(); f != nil { // in the first message
			return errors.Join(kb.ValidateNodeName(r.GetNode()), kb.ValidateRunFile(f.GetName(), f.GetDigest()))
		}
	case *api.GetRunFileRequest:
		return errors.Join(kb.ValidateNodeName(r.GetNode()), kb.ValidateDigest(r.GetDigest()))
	}
	return nil
}

func validateJob(id uint32) error {
	if id == 0 {
		return fmt.Errorf("job id is 0: %w", kb.ErrInvalid)
	}
	return nil
}

func validateNodes(nodes []string) error {
	if len(nodes) == 0 || len(nodes) > maxNodes {
		return fmt.Errorf("%d nodes, 1 to %d are allowed: %w", len(nodes), maxNodes, kb.ErrInvalid)
	}
	seen := make(map[string]bool, len(nodes))
	for _, node := range nodes {
		if err := kb.ValidateNodeName(node); err != nil {
			return err
		}
		if seen[node] {
			return fmt.Errorf("node %q is named twice: %w", node, kb.ErrInvalid)
		}
		seen[node] = true
	}
	return nil
}
