package rpc

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	kernelbroker "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/guard"
	"github.com/kernelbroker/kernelbroker/kernel-broker/policy"
)

// actions says what methods are to the policy. Of those for administrators it
// may let others call some, too; what is not here is for administrators and
// nobody else.
var actions = map[string]policy.Action{
	// Whether a job could use a profile is an early word: it counts when the
	// job has its nodes.
	api.CatalogService_CheckProfile_FullMethodName: policy.Use,

	api.CatalogService_ApplyProfile_FullMethodName:      policy.Publish,
	api.CatalogService_PromoteVersion_FullMethodName:    policy.Publish,
	api.CatalogService_SignVersion_FullMethodName:       policy.Publish,
	api.CatalogService_UploadArtifact_FullMethodName:    policy.Upload,
	api.CatalogService_GetArtifact_FullMethodName:       policy.Upload,
	api.CatalogService_RetireProfile_FullMethodName:     policy.Retire,
	api.CatalogService_QuarantineVersion_FullMethodName: policy.Quarantine,
	api.CatalogService_ReleaseQuarantine_FullMethodName: policy.Release,
	api.CatalogService_CollectArtifacts_FullMethodName:  policy.Collect,
	api.CatalogService_ListArtifacts_FullMethodName:     policy.Inspect,

	api.TrustService_CreateNodeToken_FullMethodName:  policy.Trust,
	api.TrustService_RevokeNode_FullMethodName:       policy.Trust,
	api.TrustService_RotateAuthority_FullMethodName:  policy.Trust,
	api.TrustService_ListCertificates_FullMethodName: policy.Inspect,

	api.PolicyService_GetPolicy_FullMethodName: policy.Inspect,
}

// looks are the methods for administrators that change nothing. Their record
// may come later than what they are allowed.
var looks = map[string]bool{
	api.CatalogService_GetArtifact_FullMethodName:    true,
	api.CatalogService_ListArtifacts_FullMethodName:  true,
	api.TrustService_ListCertificates_FullMethodName: true,
	api.PolicyService_GetPolicy_FullMethodName:       true,
}

// deciding are methods that strangers and nodes may call and that judge by
// themselves: what they say is a decision, too.
var deciding = map[string]bool{
	api.TrustService_Enrol_FullMethodName: true,
	api.TrustService_Renew_FullMethodName: true,
}

func actionOf(method string) policy.Action {
	action, has := actions[method]
	switch {
	case has:
		return action
	case rules[method].may == administrators:
		return policy.Administer
	case deciding[method]:
		return policy.Trust
	}
	return policy.View
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
		return kernelbroker.Ref{Profile: r.GetName(), Version: r.GetVersion()}.String()
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
	case interface{ GetNodes() []string }:
		return strings.Join(r.GetNodes(), ",")
	}
	return ""
}

// statedIn is the reason that a request gives for itself.
func statedIn(request any) string {
	if r, ok := request.(interface{ GetReason() string }); ok {
		return kernelbroker.OneLine(r.GetReason())
	}
	return ""
}

// admission is one call on its way through the gate.
type admission struct {
	gate     *gate
	method   string
	caller   Caller
	decision guard.Decision
	// binds compares the first message with what was vouched for; nil: nothing
	// was.
	binds func(any) error
	// of is the number of the decision's record; 0 while it has none.
	of uint64
	// leave gives back the call's share of the server.
	leave func()
	// quiet: refused for taking too much, of which was told a moment ago.
	quiet bool
}

// admit judges a call and returns it, or the refusal. What changes something is
// on record when admit returns.
func (g *gate) admit(ctx context.Context, method string, request any) (*admission, error) {
	caller, binds, err := g.identify(ctx, method)
	a := &admission{gate: g, method: method, caller: caller, binds: binds, decision: guard.Decision{Asker: caller.asker(),
		Action: string(actionOf(method)), Object: objectOf(request), Unknown: !caller.Known()}}
	if name := caller.Node.Name; !name.IsZero() && !caller.Known() {
		a.decision.Who = "node " + name.Name
	}
	if leave, busy := g.shares.take(method, caller); busy != nil {
		// One who floods the broker does not flood its log and record.
		err, a.quiet = busy, g.shares.words.Take(caller.holder()) > 0
	} else {
		a.leave = leave
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
		a.decision.Allowed, a.decision.Reason = false, err.Error()
		if a.quiet {
			return a, err
		}
		return a, errors.Join(err, a.note(nil))
	}
	if rules[method].may == administrators && !looks[method] {
		if a.of, err = g.guard.Note(a.decision, true); err != nil {
			a.leave()
		}
	}
	return a, err
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
			return fmt.Errorf("%s: %w: %s", nameOf(a.method), kernelbroker.ErrDenied, d.Reason)
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

// note records what became of the call. Methods that anybody may call are no
// decisions, as far as they are allowed; nor are nodes', which come by the
// thousand and have a log of their own.
func (a *admission) note(failure error) error {
	switch may := rules[a.method].may; {
	case a.of != 0:
		return a.gate.guard.NoteOutcome(a.decision, a.of, failure)
	case a.decision.Allowed && !deciding[a.method] && (may == anyone || may == agents || may == fetchers && !a.caller.Known()):
		return nil
	case a.decision.Allowed && failure != nil && (unproven(failure) || deciding[a.method] && errors.Is(failure, kernelbroker.ErrDenied)):
		a.decision.Allowed, a.decision.Reason = false, failure.Error()
	}
	return a.gate.guard.NoteWhole(a.decision, failure)
}

func nameOf(method string) string { return method[strings.LastIndexByte(method, '/')+1:] }
