// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// nodeBefore is what a node's record had of Slurm's side up to 0.1.0, before kb.SlurmSide.
type nodeBefore struct {
	Said            *kb.OutOfService `json:"said"`
	Off             string           `json:"off"`
	Drained         bool             `json:"drained"`
	SlurmdHeld      bool             `json:"slurmd_held"`
	SlurmdNotBefore time.Time        `json:"slurmd_not_before"`

	Slurm         json.RawMessage  `json:"slurm"`
	Waiting       bool             `json:"waiting"`
	DrainPasses   bool             `json:"drain_passes"`
	GateDrain     string           `json:"gate_drain"`
	KernelDrain   string           `json:"kernel_drain"`
	Armed         bool             `json:"armed"`
	ArmedAt       time.Time        `json:"armed_at"`
	ArmedIssued   bool             `json:"armed_issued"`
	AnsweredEarly bool             `json:"answered_early"`
	TakenBack     *kb.OutOfService `json:"taken_back"`
	KnownBoot     string           `json:"known_boot"`
}

// nodeFromBefore fills in Slurm's side of a node from an older record.
func nodeFromBefore(text []byte, n *kb.Node) error {
	var old nodeBefore
	if err := json.Unmarshal(text, &old); err != nil || old.Slurm != nil {
		return err
	}
	s := kb.SlurmSide{Registered: old.KnownBoot, Restore: old.Said, PoweredOffBoot: old.Off}
	if n.Failure != nil {
		n.Failure.Drained = old.Drained
	}
	if old.SlurmdHeld {
		n.Told.Slurmd = kb.SlurmdHeld
	}
	if old.Waiting {
		s.Awaited = kb.SlurmBoot{Phase: kb.BootPoweringUp, Owner: kb.OwnerJob}
	}
	switch {
	case old.ArmedIssued && old.AnsweredEarly && !old.Waiting:
		s.Awaited = kb.SlurmBoot{Phase: kb.BootForgotten, Owner: kb.OwnerBroker}
	case old.ArmedIssued:
		s.Awaited = kb.SlurmBoot{Phase: kb.BootIssued, Owner: kb.OwnerBroker}
	case old.Armed && old.ArmedAt.IsZero():
		s.Requested = kb.SlurmBoot{Phase: kb.BootRequested, Owner: kb.OwnerBroker}
	case old.Armed:
		s.Requested = kb.SlurmBoot{Phase: kb.BootAsked, Owner: kb.OwnerBroker, Since: old.ArmedAt}
	case old.DrainPasses:
		s.Requested = kb.SlurmBoot{Phase: kb.BootRequested, Owner: kb.OwnerAdministrator}
	}
	switch {
	case old.TakenBack != nil:
		s.Service = kb.Service{Author: kb.AuthorWithdrawn, Reason: old.TakenBack.Reason, By: old.TakenBack.By}
	case old.GateDrain != "":
		s.Service = kb.Service{State: kb.ServiceDrained, Author: kb.AuthorGate, Reason: kb.ReasonProlog, By: old.GateDrain}
	case old.KernelDrain != "":
		s.Service = kb.Service{State: kb.ServiceDrained, Author: kb.AuthorKernel, By: old.KernelDrain}
	}
	if s.Awaited.Awaits() {
		s.Awaited.Since = old.SlurmdNotBefore
	}
	n.Slurm = s
	return nil
}
