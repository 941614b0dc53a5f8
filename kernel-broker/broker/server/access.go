// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
)

// audience is who may call a method. Administrators may call everything.
type audience int

const (
	// anyone: every local user, and every client of the TCP port.
	anyone audience = iota + 1
	// agents: nodes that prove themselves by a certificate; where TLS is off,
	// every client of the TCP port, from a privileged port when the server asks
	// for that. No local users: a node is not posed as from a login shell on
	// the broker's host.
	agents
	// fetchers: agents, and users.
	fetchers
	// users: everybody on the broker's host, and whom MUNGE vouches for.
	users
	// slurm: Slurm's user on the broker's host or another controller's, as its
	// hooks are.
	slurm
	// administrators: whom the policy lets; see actions.
	administrators
)

func (a audience) String() string {
	return map[audience]string{
		anyone: "anyone", agents: "node agents", fetchers: "node agents and users", users: "users",
		slurm: "Slurm's user on controllers, and administrators on the broker's host", administrators: "administrators",
	}[a]
}

// rule is what holds for a method.
type rule struct {
	may audience
	// limit ends a call that takes longer, from its first byte on; 0 for agents'
	// streams, which end with the node, its certificate or its silence.
	limit time.Duration
	does  effect
	// asks is what the policy decides on; unasked where the audience alone counts. Of the methods for administrators the
	// policy may allow these to other users, too.
	asks authz.Action
}

const unasked authz.Action = ""

// effect is what a method does, for the record's sake.
type effect int

const (
	// reads changes nothing. It is recorded with what came of it, as far as one
	// does not do it too often; not where it is for anyone and for nodes.
	reads effect = iota + 1
	// reports is what nodes say of themselves and their work, all the time and by
	// the thousand. The broker's log and its store have that; what is refused of
	// it is on record.
	reports
	// changes is on record, on the disk, before it is done, or refused. Of a
	// certificate too: a node whose certificate ends while nothing can be recorded
	// has to be enrolled again.
	changes
	// returns brings nodes back to service: a job's end and a reboot. A node would
	// be lost to all by a refusal, so it is done without a record, too, and counted.
	returns
)

const (
	shortly = 15 * time.Second
	// A plain job that wants to be profiled waits for its collectors, as long as
	// runs.standby says: ten minutes at most.
	standby  = 11 * time.Minute
	transfer = 30 * time.Minute
	// A job's prolog waits no longer than a day (client.yaml), and who watches
	// for longer asks again.
	lasting = 24 * time.Hour
	forever = 0
)

// rules is the one table of who may call what, and for how long. A method
// that is missing here cannot be called.
var rules = map[string]rule{
	api.CatalogService_ListProfiles_FullMethodName: {users, shortly, reads, unasked},
	api.CatalogService_GetProfile_FullMethodName:   {users, shortly, reads, unasked},
	// Whether a job could use a profile is only an early answer: the one counts when the job has its nodes.
	api.CatalogService_CheckProfile_FullMethodName:      {users, shortly, reads, authz.Use},
	api.CatalogService_ApplyProfile_FullMethodName:      {administrators, shortly, changes, authz.Publish},
	api.CatalogService_ReleaseQuarantine_FullMethodName: {administrators, shortly, changes, authz.Release},
	api.CatalogService_RetireProfile_FullMethodName:     {administrators, shortly, changes, authz.Retire},
	api.CatalogService_PromoteVersion_FullMethodName:    {administrators, shortly, changes, authz.Publish},
	api.CatalogService_QuarantineVersion_FullMethodName: {administrators, shortly, changes, authz.Quarantine},
	api.CatalogService_SignVersion_FullMethodName:       {administrators, shortly, changes, authz.Publish},
	api.CatalogService_UploadArtifact_FullMethodName:    {administrators, transfer, changes, authz.Upload},
	api.CatalogService_GetArtifact_FullMethodName:       {administrators, shortly, reads, authz.Upload},
	api.CatalogService_ListArtifacts_FullMethodName:     {administrators, shortly, reads, authz.Inspect},
	api.CatalogService_CollectArtifacts_FullMethodName:  {administrators, transfer, changes, authz.Collect},
	api.CatalogService_FetchArtifact_FullMethodName:     {fetchers, transfer, reads, unasked},
	api.CatalogService_GetSnapshot_FullMethodName:       {anyone, shortly, reads, unasked},

	api.AllocationService_EnsureKernel_FullMethodName: {slurm, lasting, changes, unasked},
	api.AllocationService_ReleaseJob_FullMethodName:   {slurm, shortly, returns, unasked},
	api.AllocationService_NoteReboot_FullMethodName:   {slurm, shortly, returns, unasked},
	api.AllocationService_GetJob_FullMethodName:       {users, shortly, reads, unasked},
	api.AllocationService_GetJobWait_FullMethodName:   {users, shortly, reads, unasked},
	api.AllocationService_ListJobs_FullMethodName:     {users, shortly, reads, unasked},

	api.NodeService_Connect_FullMethodName:   {agents, forever, reports, unasked},
	api.NodeService_ListNodes_FullMethodName: {users, shortly, reads, unasked},
	api.NodeService_GetNode_FullMethodName:   {users, shortly, reads, unasked},

	api.EventService_ListEvents_FullMethodName:  {users, shortly, reads, unasked},
	api.EventService_WatchEvents_FullMethodName: {users, lasting, reads, unasked},

	api.HardwareService_ListHardware_FullMethodName:       {users, shortly, reads, unasked},
	api.HardwareService_SetHardwareRule_FullMethodName:    {administrators, shortly, changes, authz.Administer},
	api.HardwareService_RemoveHardwareRule_FullMethodName: {administrators, shortly, changes, authz.Administer},

	api.RunService_RequestRun_FullMethodName:    {administrators, shortly, changes, unasked},
	api.RunService_CancelRun_FullMethodName:     {administrators, shortly, changes, unasked},
	api.RunService_BeginRun_FullMethodName:      {slurm, standby, changes, unasked},
	api.RunService_ListRuns_FullMethodName:      {users, shortly, reads, unasked},
	api.RunService_GetRun_FullMethodName:        {users, shortly, reads, unasked},
	api.RunService_WatchRun_FullMethodName:      {users, lasting, reads, unasked},
	api.RunService_UploadRunFile_FullMethodName: {agents, transfer, reports, unasked},
	api.RunService_GetRunFile_FullMethodName:    {agents, shortly, reads, unasked},
	api.RunService_DeliverRun_FullMethodName:    {agents, shortly, changes, unasked},

	// Who has a token is no node yet; the token is checked by the service, also
	// before the call is on record.
	api.TrustService_Enrol_FullMethodName:            {anyone, shortly, changes, unasked},
	api.TrustService_GetAuthority_FullMethodName:     {anyone, shortly, reads, unasked},
	api.TrustService_Renew_FullMethodName:            {agents, shortly, changes, unasked},
	api.TrustService_CreateNodeToken_FullMethodName:  {administrators, shortly, changes, authz.Trust},
	api.TrustService_RevokeNode_FullMethodName:       {administrators, shortly, changes, authz.Trust},
	api.TrustService_ListCertificates_FullMethodName: {administrators, shortly, reads, authz.Inspect},
	api.TrustService_RotateAuthority_FullMethodName:  {administrators, shortly, changes, authz.Trust},

	api.PolicyService_TestPolicy_FullMethodName: {users, shortly, reads, unasked},
	api.PolicyService_GetPolicy_FullMethodName:  {administrators, shortly, reads, authz.Inspect},

	api.HealthService_GetHealth_FullMethodName: {users, shortly, reads, unasked},

	// Agents ask before they end, to know that what they sent arrived.
	grpc_health_v1.Health_Check_FullMethodName: {anyone, shortly, reads, unasked},
	grpc_health_v1.Health_List_FullMethodName:  {users, shortly, reads, unasked},
	grpc_health_v1.Health_Watch_FullMethodName: {users, lasting, reads, unasked},

	"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      {users, transfer, reads, unasked},
	"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": {users, transfer, reads, unasked},
}

// access decides who may call which method.
type access struct {
	administrators []uint32
	slurmUsers     []uint32
	controllers    []netip.Prefix
	privileged     bool // agents must dial from a privileged port
	certificates   bool // agents must show a certificate
}

// check returns kb.ErrDenied with who may and who the caller is.
func (d access) check(method string, caller Caller) error {
	if d.permits(rules[method].may, caller) {
		return nil
	}
	name := method[strings.LastIndexByte(method, '/')+1:]
	may := rules[method].may
	switch {
	case may == 0:
		return fmt.Errorf("%s: nobody may call this: %w", name, kb.ErrDenied)
	case (may == agents || may == fetchers) && !caller.Local && d.certificates:
		return fmt.Errorf("%s: agents have to show a node's certificate, %s shows none: %w", name, caller, kb.ErrDenied)
	case (may == agents || may == fetchers) && !caller.Local:
		return fmt.Errorf("%s: agents have to dial from a port below %d, you came from %s: %w",
			name, firstOpenPort, caller, kb.ErrDenied)
	case may == slurm && !caller.Local:
		return fmt.Errorf("%s is for %s; you came over the network from %s (slurm.controllers in broker.yaml): %w", name, may, caller, kb.ErrDenied)
	case !caller.Known() && caller.Node.Name.IsZero():
		return fmt.Errorf("%s is for %s, and nothing proves who you are, over the network from %s (kernelctl has MUNGE prove it): %w",
			name, may, caller, kb.ErrUnauthenticated)
	case !caller.Local:
		return fmt.Errorf("%s is for %s; you are %s: %w", name, may, caller, kb.ErrDenied)
	}
	return fmt.Errorf("%s is for %s; you are uid %d: %w", name, may, caller.UID, kb.ErrDenied)
}

func (d access) permits(may audience, caller Caller) bool {
	if d.certificates && may == agents {
		return d.agent(caller) // root is no node, either
	}
	if caller.Local && slices.Contains(d.administrators, caller.UID) {
		return may != 0
	}
	switch may {
	case anyone:
		return true
	case agents:
		return d.agent(caller)
	case fetchers:
		return caller.Known() || d.agent(caller)
	case users:
		return caller.Known()
	case slurm:
		return d.hook(caller)
	}
	return false
}

// hook reports whether Slurm's user calls: on the broker's host, or on another
// controller's, where MUNGE proves it.
func (d access) hook(caller Caller) bool {
	return slices.Contains(d.slurmUsers, caller.UID) &&
		(caller.Local || caller.Verified && onController(d.controllers, caller.Address))
}

// exempt reports whether a caller is subject to no limits: administrators on the
// broker's host, and Slurm's hooks.
func (d access) exempt(caller Caller) bool {
	return caller.Local && slices.Contains(d.administrators, caller.UID) || d.hook(caller)
}

// onController reports whether an address with its port is a controller's.
func onController(controllers []netip.Prefix, address string) bool {
	from, err := netip.ParseAddrPort(address)
	return err == nil && slices.ContainsFunc(controllers, func(n netip.Prefix) bool { return n.Contains(from.Addr().Unmap()) })
}

func (d access) agent(caller Caller) bool {
	if d.certificates {
		return caller.Node.Name.Role == mtls.Node
	}
	return !caller.Local && (caller.PrivilegedPort || !d.privileged)
}

// visibility decides whose jobs a caller sees, as Slurm does (PrivateData=jobs).
// The broker's administrators and Slurm's hooks see all jobs.
type visibility struct {
	caller Caller
	all    func(ctx context.Context) bool
	// allowed asks the policy.
	allowed func(ctx context.Context, action authz.Action) bool
}

type visibilityKey struct{}

func (g *interceptor) withVisibility(ctx context.Context, caller Caller) context.Context {
	allowed := func(ctx context.Context, action authz.Action) bool {
		if !caller.Known() { // its uid is 0
			return false
		}
		d, err := g.authorizer.Authorize(ctx, caller.subject(), action, "", nil)
		return err == nil && d.Allowed
	}
	all := func(ctx context.Context) bool {
		return g.showsOthers == nil || g.access.permits(slurm, caller) || allowed(ctx, authz.Inspect) || caller.Known() && g.showsOthers(ctx, caller.UID)
	}
	return context.WithValue(ctx, visibilityKey{}, visibility{caller, all, allowed})
}

// visibilityOf is that of a call's caller. A test that calls a method directly has
// none and sees all.
func visibilityOf(ctx context.Context) visibility {
	if s, ok := ctx.Value(visibilityKey{}).(visibility); ok {
		return s
	}
	return visibility{CallerOf(ctx), func(context.Context) bool { return true }, func(context.Context, authz.Action) bool { return false }}
}

// whose is the one user whose jobs the caller sees; nil stands for everybody's.
func (v visibility) whose(ctx context.Context) *uint32 {
	if v.all(ctx) {
		return nil
	}
	return &v.caller.UID
}

// hidden turns what a caller may not see into the same error as what is not
// there, which tells both why: that a job has no kernel is as private as that it
// has one.
func (v visibility) hidden(ctx context.Context, what string, uid uint32, err error) error {
	if err != nil && !errors.Is(err, kb.ErrNotFound) {
		return err
	}
	if whose := v.whose(ctx); whose == nil || err == nil && *whose == uid {
		return err
	}
	return fmt.Errorf("%s: there is none, or it is not yours (slurm.conf has PrivateData=jobs: others' are for Slurm's operators and administrators): %w",
		what, kb.ErrNotFound)
}
