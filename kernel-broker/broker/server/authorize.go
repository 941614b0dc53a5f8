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

// actionOf is what a call is recorded as.
func actionOf(method string) authz.Action {
	switch r := rules[method]; {
	case r.asks != unasked:
		return r.asks
	case r.may == administrators:
		return authz.Administer
	case decides(method):
		return authz.Trust
	}
	return authz.View
}

// decides reports whether nodes and unauthenticated callers may call a method whose service decides: its outcome is a
// decision, too.
func decides(method string) bool {
	return method == api.TrustService_Enrol_FullMethodName || method == api.TrustService_Renew_FullMethodName
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
		return refOf(r).String()
	case interface{ GetJobId() uint32 }:
		return "job " + strconv.FormatUint(uint64(r.GetJobId()), 10)
	case interface{ GetProfile() string }:
		return r.GetProfile()
	case interface{ GetRule() *api.HardwareRule }:
		return r.GetRule().GetName()
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

// nodeNames of a request are in its record; the rest is counted.
const nodeNames = 16

func namesOf(nodes []string) string {
	text := strings.Join(nodes[:min(len(nodes), nodeNames)], ",")
	if more := len(nodes) - nodeNames; more > 0 {
		text = fmt.Sprintf("%d more than %s", more, text)
	}
	return text
}

// reasonIn is the reason that a request states.
func reasonIn(request any) string {
	if r, ok := request.(interface{ GetReason() string }); ok {
		return kb.OneLine(r.GetReason())
	}
	return ""
}

// call is the context of one call: who makes it, and what was decided.
type call struct {
	interceptor *interceptor
	method      string
	caller      Caller
	decision    authz.Decision
	// binds compares the first message with the one that the credential is for;
	// nil without a credential.
	binds func(any) error
	// of is the number of the decision's record; 0 without one.
	of uint64
	// done releases what the call holds of the quotas.
	done func()
	// quiet: refused by a limit, like another call that was logged lately.
	quiet bool
	// unrecorded: carried out although it could not be recorded.
	unrecorded bool
}

// admit authorizes a call. It returns the call with an error, too. What changes
// something is on record when admit returns.
func (g *interceptor) admit(ctx context.Context, method string, request any) (*call, error) {
	caller, binds, err := g.identified(ctx, method)
	c := &call{interceptor: g, method: method, caller: caller, binds: binds, done: func() {}, decision: authz.Decision{Caller: caller.subject(),
		Action: string(actionOf(method)), Object: objectOf(request), Unknown: !caller.Known()}}
	if name := caller.Node.Name; !name.IsZero() && !caller.Known() {
		c.decision.Who = "node " + name.Name
	}
	limited := err
	if !isRetryable(err) {
		var done func()
		if done, limited = g.quotas.begin(method, caller); limited == nil {
			c.done = done
		}
		if limited != nil && caller.decoded {
			// Good credentials beyond a limit cost munged as much as bad ones.
			g.quotas.failed.Take(caller.Address)
		}
	}
	if limited != nil {
		err, c.quiet = limited, g.quotas.logged.Take(caller.holder()) > 0
	}
	if err == nil && binds != nil && request != nil {
		err = binds(request)
	}
	if err == nil {
		err = c.authorize(ctx)
	}
	if err == nil && !g.access.certificates && validate(request) == nil && strings.HasPrefix(method, "/"+api.TrustService_ServiceDesc.ServiceName+"/") {
		err = errTLSOff
	}
	c.decision.Via, c.decision.Stated = nameOf(method), reasonIn(request)
	if err != nil {
		err = c.refuse(err)
	} else {
		err = c.record(ctx, request)
	}
	if err != nil {
		c.done()
	}
	return c, err
}

// refuse records a refusal and returns it.
func (c *call) refuse(err error) error {
	c.decision.Allowed, c.decision.Reason = false, err.Error()
	return errors.Join(err, c.note(nil))
}

// record writes what is about to be changed to the audit log, synced. An invalid
// request and a dry run change nothing, and neither does one that its service would refuse.
func (c *call) record(ctx context.Context, request any) error {
	does := rules[c.method].does
	if does != changes && does != returns || request != nil && validate(request) != nil || isDryRun(request) {
		return nil
	}
	if r, ok := request.(*api.EnrolRequest); ok && c.interceptor.mayEnrol != nil {
		// Junk tokens would cause records that are never left out.
		err := c.interceptor.catch(c.method, func() error {
			return c.interceptor.mayEnrol(ctx, r.GetNode(), r.GetSecret(), r.GetCertificateRequest())
		})
		if err != nil {
			return c.refuse(err)
		}
	}
	if q := c.interceptor.quotas; !q.isExempt(c.caller) {
		holder := c.caller.holder()
		if wait := q.changes.Take(holder); wait > 0 {
			c.quiet = q.logged.Take(holder) > 0
			return c.refuse(retryIn(wait, "%s: more than %v changes a second, and %d at once", holder, q.changes.PerSecond, q.changes.Burst))
		}
	}
	c.decision.Open = decides(c.method) || rules[c.method].may == agents
	of, err := c.interceptor.authorizer.Note(c.decision, true)
	if err != nil && does == returns {
		c.unrecorded = true
		c.interceptor.log.Error("call carried out but not recorded", "method", c.method, "caller", c.caller.String(), "object", c.decision.Object, "error", err)
		return nil
	}
	c.of = of
	return err
}

// authorize asks the policy about users, and the table of methods about all other
// callers.
func (c *call) authorize(ctx context.Context) error {
	may := rules[c.method].may
	if c.caller.Known() && (rules[c.method].asks != unasked || may == administrators) {
		d, err := c.interceptor.authorizer.Authorize(ctx, c.caller.subject(), actionOf(c.method), c.decision.Object, nil)
		if err != nil {
			return err
		}
		c.decision = d
		if !d.Allowed {
			return fmt.Errorf("%s: %w: %s", nameOf(c.method), kb.ErrDenied, d.Reason)
		}
		return nil
	}
	if err := c.interceptor.access.check(c.method, c.caller); err != nil {
		return err
	}
	c.decision.Allowed, c.decision.Reason = true, "for "+may.String()
	// Slurm's hooks do not wait for a name service.
	if c.caller.Known() && may != slurm {
		c.decision.Who = c.interceptor.authorizer.NameOf(ctx, c.caller.UID)
	}
	return nil
}

// note records how the call ended. What a service denies is a refusal like any
// other.
func (c *call) note(failure error) error {
	if c.decision.Allowed && c.denied(failure) {
		c.decision.Allowed, c.decision.Reason = false, status.Convert(statusOf(failure)).Message()
	}
	switch {
	case c.of != 0:
		return c.interceptor.authorizer.NoteOutcome(c.decision, c.of, failure)
	case c.unrecorded, c.decision.Allowed && c.undecided():
		return nil
	}
	return c.interceptor.authorizer.NoteWhole(c.decision, failure)
}

// denied reports whether a service's error means that the caller may not. To
// nodes it also means that they are not part of something: Slurm's configuration,
// a run.
func (c *call) denied(failure error) bool {
	if failure == nil {
		return false
	}
	switch status.Code(statusOf(failure)) {
	case codes.PermissionDenied, codes.Unauthenticated:
		return true
	case codes.NotFound, codes.FailedPrecondition:
		return rules[c.method].may == agents
	}
	return false
}

// undecided reports whether there was nothing to decide: calls for anyone, and
// what nodes do all the time.
func (c *call) undecided() bool {
	switch r := rules[c.method]; r.does {
	case reports:
		return true
	case reads:
		return r.may == anyone || r.may == agents || r.may == fetchers && !c.caller.Known()
	}
	return false
}

func nameOf(method string) string { return method[strings.LastIndexByte(method, '/')+1:] }
