// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
)

// actions says what methods are to the policy. Of those for administrators it
// may let others call some, too; what is not here is for administrators and
// nobody else.
var actions = map[string]authz.Action{
	// Whether a job could use a profile is an early word: it counts when the
	// job has its nodes.
	api.CatalogService_CheckProfile_FullMethodName: authz.Use,

	api.CatalogService_ApplyProfile_FullMethodName:      authz.Publish,
	api.CatalogService_PromoteVersion_FullMethodName:    authz.Publish,
	api.CatalogService_SignVersion_FullMethodName:       authz.Publish,
	api.CatalogService_UploadArtifact_FullMethodName:    authz.Upload,
	api.CatalogService_GetArtifact_FullMethodName:       authz.Upload,
	api.CatalogService_RetireProfile_FullMethodName:     authz.Retire,
	api.CatalogService_QuarantineVersion_FullMethodName: authz.Quarantine,
	api.CatalogService_ReleaseQuarantine_FullMethodName: authz.Release,
	api.CatalogService_CollectArtifacts_FullMethodName:  authz.Collect,
	api.CatalogService_ListArtifacts_FullMethodName:     authz.Inspect,

	api.TrustService_CreateNodeToken_FullMethodName:  authz.Trust,
	api.TrustService_RevokeNode_FullMethodName:       authz.Trust,
	api.TrustService_RotateAuthority_FullMethodName:  authz.Trust,
	api.TrustService_ListCertificates_FullMethodName: authz.Inspect,

	api.PolicyService_GetPolicy_FullMethodName: authz.Inspect,
}

// deciding are methods that strangers and nodes may call and that judge by
// themselves: what they say is a decision, too.
var deciding = map[string]bool{
	api.TrustService_Enrol_FullMethodName: true,
	api.TrustService_Renew_FullMethodName: true,
}

func actionOf(method string) authz.Action {
	action, has := actions[method]
	switch {
	case has:
		return action
	case rules[method].may == administrators:
		return authz.Administer
	case deciding[method]:
		return authz.Trust
	}
	return authz.View
}

// objectOf is what a request is about; nil where the request has not come yet.
func objectOf(request any) string {
	switch r := request.(type) {
	case interface{ GetProfile() *api.Profile }:
		return r.GetProfile().GetName()
	case interface {
		GetName() string
		GetVersion() uint32
	}:
		return kb.Ref{Profile: r.GetName(), Version: r.GetVersion()}.String()
	case interface{ GetJobId() uint32 }:
		return "job " + strconv.FormatUint(uint64(r.GetJobId()), 10)
	case interface{ GetProfile() string }:
		return r.GetProfile()
	case interface{ GetName() string }:
		return r.GetName()
	case interface{ GetDigest() string }:
		return r.GetDigest()
	case interface{ GetNode() string }:
		return r.GetNode()
	case interface{ GetHello() *api.Hello }:
		return r.GetHello().GetNode()
	case interface{ GetNodes() []string }:
		return namesOf(r.GetNodes())
	}
	return ""
}

// mostNames of nodes are in a record, which is cut there anyway.
const mostNames = 16

func namesOf(nodes []string) string {
	text := strings.Join(nodes[:min(len(nodes), mostNames)], ",")
	if more := len(nodes) - mostNames; more > 0 {
		text = fmt.Sprintf("%d more than %s", more, text)
	}
	return text
}

// statedIn is the reason that a request gives for itself.
func statedIn(request any) string {
	if r, ok := request.(interface{ GetReason() string }); ok {
		return kb.OneLine(r.GetReason())
	}
	return ""
}

// admission is one call on its way through the gate.
type admission struct {
	gate     *gate
	method   string
	caller   Caller
	decision authz.Decision
	// binds compares the first message with what was vouched for; nil: nothing
	// was.
	binds func(any) error
	// of is the number of the decision's record; 0 while it has none.
	of uint64
	// leave gives back the call's share of the server.
	leave func()
	// quiet: refused for taking too much, of which was told a moment ago.
	quiet bool
	// unrecorded: done although it could not be recorded.
	unrecorded bool
}

// admit judges a call and returns it, or the refusal. What changes something is
// on record when admit returns.
func (g *gate) admit(ctx context.Context, method string, request any) (*admission, error) {
	caller, binds, doubt, err := g.identify(ctx, method)
	a := &admission{gate: g, method: method, caller: caller, binds: binds, decision: authz.Decision{Asker: caller.asker(),
		Action: string(actionOf(method)), Object: objectOf(request), Unknown: !caller.Known()}}
	if name := caller.Node.Name; !name.IsZero() && !caller.Known() {
		a.decision.Who = "node " + name.Name
	}
	var busy error
	if tooMuch(err) {
		busy = err
	} else if a.leave, busy = g.shares.take(method, caller); busy == nil {
		doubt.counted()
	}
	doubt.seen()
	if busy != nil {
		// One who floods the broker does not flood its log and record.
		err, a.quiet = busy, g.shares.words.Take(caller.holder()) > 0
	}
	if err == nil && binds != nil && request != nil {
		err = binds(request)
	}
	if err == nil {
		err = a.judge(ctx)
	}
	a.decision.Via, a.decision.Stated = nameOf(method), statedIn(request)
	if err != nil {
		if a.leave != nil {
			a.leave()
		}
		return a, a.refuse(err, a.quiet)
	}
	if err = a.record(ctx, request); err != nil {
		a.leave()
	}
	return a, err
}

// refuse notes a refusal and returns it. Of a quiet one the record has the number.
func (a *admission) refuse(err error, quiet bool) error {
	a.decision.Allowed, a.decision.Reason, a.quiet = false, err.Error(), quiet
	if quiet {
		a.gate.guard.LeaveOut(a.decision)
		return err
	}
	return errors.Join(err, a.note(nil))
}

// record has on the disk what is about to be changed. What is no valid request
// changes nothing, and neither does what its service would refuse.
func (a *admission) record(ctx context.Context, request any) error {
	does := rules[a.method].does
	if does != changes && does != returns || request != nil && validate(request) != nil {
		return nil
	}
	by := []string{a.caller.holder()}
	if vet := a.gate.vets[a.method]; vet != nil && request != nil {
		if err := a.gate.catch(a.method, func() error {
			of, err := vet(ctx, request)
			if of != "" {
				by = append(by, of)
			}
			return err
		}); err != nil {
			return a.refuse(err, false)
		}
	}
	for _, holder := range by {
		if err := a.change(holder); err != nil {
			return err
		}
	}
	a.decision.Open = deciding[a.method] || rules[a.method].may == agents
	of, err := a.gate.guard.Note(a.decision, true)
	if err != nil && does == returns {
		a.unrecorded = true
		a.gate.log.Error("done, and not on record", "method", a.method, "caller", a.caller.String(), "object", a.decision.Object, "error", err)
		return nil
	}
	a.of = of
	return err
}

// change takes a share of what may be changed. What the policy or a service lets
// somebody do he may do so often that it is no flood of the record; it is not
// left out there.
func (a *admission) change(holder string) error {
	if a.gate.shares.exempt(a.caller) {
		return nil
	}
	wait := a.gate.shares.changes.Take(holder)
	if wait == 0 {
		return nil
	}
	most := a.gate.shares.limits.Changes
	err := later(wait, "%s: more than %v changes a second, and %d at once", holder, most.PerSecond, most.Burst)
	return a.refuse(err, a.gate.shares.words.Take(holder) > 0)
}

// judge asks the policy of users, and the door of everybody else.
func (a *admission) judge(ctx context.Context) error {
	may := rules[a.method].may
	if _, judged := actions[a.method]; a.caller.Known() && (judged || may == administrators) {
		d, err := a.gate.guard.Judge(ctx, a.caller.asker(), actionOf(a.method), a.decision.Object, nil)
		if err != nil {
			return err
		}
		a.decision = d
		if !d.Allowed {
			return fmt.Errorf("%s: %w: %s", nameOf(a.method), kb.ErrDenied, d.Reason)
		}
		return nil
	}
	if err := a.gate.door.check(a.method, a.caller); err != nil {
		return err
	}
	a.decision.Allowed, a.decision.Reason = true, "for "+may.String()
	// Slurm's hooks wait for no name service.
	if a.caller.Known() && may != slurm {
		a.decision.Who = a.gate.guard.NameOf(ctx, a.caller.UID)
	}
	return nil
}

// note records what became of the call. What a service refuses is a refusal like
// any other.
func (a *admission) note(failure error) error {
	if a.decision.Allowed && a.refuses(failure) {
		a.decision.Allowed, a.decision.Reason = false, status.Convert(statusOf(failure)).Message()
	}
	switch {
	case a.of != 0:
		return a.gate.guard.NoteOutcome(a.decision, a.of, failure)
	case a.unrecorded, a.decision.Allowed && a.unjudged():
		return nil
	}
	return a.gate.guard.NoteWhole(a.decision, failure)
}

// refuses reports whether a service's error says that the caller may not. Nodes
// are also told so by what they are not part of: Slurm's configuration, a run.
func (a *admission) refuses(failure error) bool {
	if failure == nil {
		return false
	}
	switch status.Code(statusOf(failure)) {
	case codes.PermissionDenied, codes.Unauthenticated:
		return true
	case codes.NotFound, codes.FailedPrecondition:
		return rules[a.method].may == agents
	}
	return false
}

// unjudged reports whether nobody had anything to decide: what anybody may call,
// and nodes do all the time.
func (a *admission) unjudged() bool {
	switch r := rules[a.method]; r.does {
	case reports:
		return true
	case reads:
		return r.may == anyone || r.may == agents || r.may == fetchers && !a.caller.Known()
	}
	return false
}

func nameOf(method string) string { return method[strings.LastIndexByte(method, '/')+1:] }
