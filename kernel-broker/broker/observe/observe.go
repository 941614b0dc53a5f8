// SPDX-License-Identifier: Apache-2.0

// Package observe makes Slurm's side of a node of what is known of it and what slurmctld shows now. It is the one reader of
// slurmctld's flags and reasons: rules ask the model, whose races are the rows of these tables.
//
// # Boots
//
//	slurmctld shows                   slot       phase        owner, the first that holds
//	POWERING_UP                       awaited    powering up  job
//	REBOOT_ISSUED, node down          awaited    issued       job's, if slurmctld gave no reason of its own (26.05)
//	                                                          broker, by the reason
//	                                                          broker, if that return is over and slurmctld forgot its end
//	                                                          administrator, if ours was issued before, and the reason is
//	                                                          another that was there when this one was issued
//	                                                          as awaited before; as requested before; administrator
//	REBOOT_ISSUED, node up            awaited    forgotten    the same
//	REBOOT_REQUESTED                  requested  requested    broker, by the reason
//	                                                          broker, if that return is over and slurmctld forgot its end
//	                                                          if ours was issued: broker, if slurmctld forgot that with the
//	                                                          end of the job, else administrator
//	                                                          as before; administrator
//	neither                           requested  asked        broker, for the time that a request may take to be seen
//
// # Service
//
//	slurmctld shows                   author
//	in service, with a reason         withdrawn
//	a reason of ours                  return, failure
//	the same word as before           as before, if that was withdrawn, the gate or the kernel
//	INVALID_REG on a profile's kernel kernel
//	words of slurmctld's own          slurmctld
//	Prolog error                      gate, if the gate refused a job then; prolog, if it may be the site's
//	no reason                         nobody
//	any other                         administrator
//
// It is the same word if the reason is, and its author and time; once a boot is issued slurmctld dates reasons anew.
package observe

import (
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// Facts are what slurmctld's line of a node does not show.
type Facts struct {
	// At is when slurmctld was asked, and Now when that is taken in.
	At, Now time.Time
	// JobBack: the job for which the return was requested has the node again.
	JobBack bool
	// Returned: the node is back on stock, its job left a moment ago, and no boot of an administrator's is known.
	Returned bool
	// LastJobBack: the job that left has the node again.
	LastJobBack bool
	// ThrownOff: somebody took the node from its job.
	ThrownOff bool
	// OnProfile: the node runs a profile's kernel.
	OnProfile bool
	// Refused reports whether the gate's refusal of a job explains a drain of that time.
	Refused func(drained time.Time) bool
}

// AskedFor is how long a request may take to be seen.
const AskedFor = 10 * time.Second

// Node is Slurm's side of a node now. It is its own next one: the same line changes nothing more.
func Node(was kb.SlurmSide, row kb.SlurmNode, f Facts) kb.SlurmSide {
	next := was
	next.Service = service(was, row, f)
	next.Awaited = awaited(was, next.Service, row, f)
	if next.Awaited.Awaits() {
		next.Awaited.Since = f.Now
		if was.Awaited.Awaits() {
			next.Awaited.Since = was.Awaited.Since
		}
	}
	if row.Unknown() && !row.RebootAsked() {
		next.Awaited.Owner = was.Awaited.Owner // slurmctld restarted, has not heard from the node, and may show it again
		return next
	}
	next.Requested = requested(was, next, row, f)
	return next
}

func awaited(was kb.SlurmSide, said kb.Service, row kb.SlurmNode, f Facts) kb.SlurmBoot {
	switch {
	case row.PoweringUp():
		return kb.SlurmBoot{Phase: kb.BootPoweringUp, Owner: kb.OwnerJob}
	case !row.RebootIssued():
		return kb.SlurmBoot{}
	case row.BootForgotten():
		return kb.SlurmBoot{Phase: kb.BootForgotten, Owner: issuedBy(was, said, row, f)}
	}
	return kb.SlurmBoot{Phase: kb.BootIssued, Owner: issuedBy(was, said, row, f)}
}

// issuedBy is whose the boot is that slurmctld has issued.
func issuedBy(was kb.SlurmSide, said kb.Service, row kb.SlurmNode, f Facts) kb.BootOwner {
	issued := was.Awaited.Owner
	switch {
	case ours(row):
		return kb.OwnerBroker
	case row.BootsForJob() && issued != kb.OwnerBroker:
		return kb.OwnerJob
	case returnIsOver(was, row, f):
		return kb.OwnerBroker
	case issued == kb.OwnerBroker && anotherIssued(was, said, row):
		return kb.OwnerAdministrator
	case issued != kb.OwnerNone && issued != kb.OwnerJob:
		return issued
	case was.Requested.Owner != kb.OwnerNone:
		return was.Requested.Owner
	}
	return kb.OwnerAdministrator
}

func requested(was, next kb.SlurmSide, row kb.SlurmNode, f Facts) kb.SlurmBoot {
	asked := was.Requested
	switch {
	case !row.RebootRequested() && row.RebootIssued() && next.Awaited.Owner != kb.OwnerJob:
		return kb.SlurmBoot{} // it is the awaited one
	case !row.RebootRequested() && row.RebootIssued():
		return asked // the return is requested under a job's boot
	case !row.RebootRequested():
		if asked.Phase == kb.BootAsked && f.At.Sub(asked.Since) < AskedFor {
			return asked
		}
		return kb.SlurmBoot{}
	}
	return kb.SlurmBoot{Phase: kb.BootRequested, Owner: requestedBy(was, row, f)}
}

// requestedBy is whose the boot is that slurmctld will issue.
func requestedBy(was kb.SlurmSide, row kb.SlurmNode, f Facts) kb.BootOwner {
	switch {
	case ours(row), returnIsOver(was, row, f):
		return kb.OwnerBroker
	case was.Awaited.Owner == kb.OwnerBroker:
		// Ours was issued: this one came after it, unless slurmctld was killed and forgot that.
		if f.JobBack {
			return kb.OwnerBroker
		}
	case was.Requested.Owner != kb.OwnerNone:
		return was.Requested.Owner
	}
	return kb.OwnerAdministrator
}

// ours reports whether the reason says that a boot is a return.
func ours(row kb.SlurmNode) bool { return strings.HasPrefix(row.Reason, kb.ReasonReturn) }

// returnIsOver reports whether slurmctld waits for the boot of a return that has ended: one that was killed may remember a
// state from before it, with the job that left. A reason that came after slurmctld issued the boot is none of a reboot's.
func returnIsOver(was kb.SlurmSide, row kb.SlurmNode, f Facts) bool {
	return f.Returned && !was.Armed() && !was.ByAdministrator() && !row.BootsForJob() &&
		(f.LastJobBack || row.RebootIssued() && row.Foreign() && row.Reason == row.PlainReason())
}

// anotherIssued reports whether the issued boot is an administrator's, ours having been issued and ended between two polls:
// slurmctld adds to a reason that the boot is issued, and this reason was not there when ours was.
func anotherIssued(was kb.SlurmSide, said kb.Service, row kb.SlurmNode) bool {
	return row.Reason != row.PlainReason() && row.PlainReason() != was.Service.Reason &&
		row.Foreign() && !said.Nobodys() && was.Service.Author != kb.AuthorWithdrawn &&
		(was.Restore == nil || was.Restore.Reason != row.PlainReason())
}

func service(was kb.SlurmSide, row kb.SlurmNode, f Facts) kb.Service {
	next := kb.Service{State: state(was, row, f), Reason: row.PlainReason(), By: row.By, Until: row.ResumeAfter}
	if next.Reason == "" {
		return next
	}
	next.Author = author(was.Service, row, f)
	return next
}

// state tells a node that was set down from one that is drained. slurmctld sets a node down to boot it, be it ever so
// shortly after: what tells then is that slurmd had ended that already, or that its job was thrown off it.
func state(was kb.SlurmSide, row kb.SlurmNode, f Facts) kb.ServiceState {
	switch {
	case row.Down() && !row.Unknown() && (!row.RebootIssued() || f.ThrownOff || was.Awaited.Phase == kb.BootForgotten ||
		was.Service.State == kb.ServiceDown && was.Service.Reason == row.PlainReason()):
		return kb.ServiceDown
	case row.Failing():
		return kb.ServiceFailing
	case row.Drained() || row.Down():
		return kb.ServiceDrained
	}
	return kb.ServiceIn
}

func author(was kb.Service, row kb.SlurmNode, f Facts) kb.ServiceAuthor {
	// A record of an older version knows author and time alone.
	same := was.Reason == row.PlainReason() && row.RebootIssued() || was.By == row.By && (was.Reason == row.PlainReason() || was.Reason == "")
	before := func(author kb.ServiceAuthor) bool { return same && was.Author == author }
	drained := row.Drained() && (row.State != "DOWN" || row.RebootIssued())
	switch {
	case ours(row):
		return kb.AuthorReturn
	case row.Unnamed():
		return kb.AuthorSlurmctld
	case !row.Drained() && !row.Down() && !row.RebootAsked(), before(kb.AuthorWithdrawn):
		return kb.AuthorWithdrawn
	case strings.HasPrefix(row.Reason, kb.ReasonDrain):
		return kb.AuthorFailure
	case row.Misfit() && f.OnProfile, before(kb.AuthorKernel):
		return kb.AuthorKernel
	case before(kb.AuthorProlog):
		return kb.AuthorProlog
	case drained && row.PlainReason() == kb.ReasonProlog && (before(kb.AuthorGate) || f.Refused(row.ReasonAt())):
		return kb.AuthorGate
	case row.Foreign():
		return kb.AuthorAdministrator
	}
	return kb.AuthorSlurmctld
}
