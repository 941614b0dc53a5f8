// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// RuleKexec is what a rule forbids.
type RuleKexec string

// What rules forbid.
const (
	// KexecNever forbids every kexec: nodes that match run no profile's kernel.
	KexecNever RuleKexec = "never"
	// KexecNoReturn forbids the kexec back to stock: nodes that match return by a boot of the machine's own.
	KexecNoReturn RuleKexec = "no-return"
)

// HardwareRule restricts kexec on the nodes that match all its patterns. An empty pattern matches everything.
type HardwareRule struct {
	Name string `json:"name"`
	// Node is a name; the others are patterns, in which * stands for any text.
	Node     string `json:"node,omitempty"`
	Board    string `json:"board,omitempty"`
	Firmware string `json:"firmware,omitempty"`
	NIC      string `json:"nic,omitempty"`
	// Kernel is a profile, with its version or for all of them; empty for all.
	Kernel string    `json:"kernel,omitempty"`
	Kexec  RuleKexec `json:"kexec"`
	// By is how the node returns: WayReboot or WayReset.
	By Way `json:"by"`
	// Once: the rule is for the node's next return only, which removes it.
	Once   bool      `json:"once,omitempty"`
	Reason string    `json:"reason,omitempty"`
	Author string    `json:"author,omitempty"`
	At     time.Time `json:"at"`
}

// MaxHardwareRules limits the rules, which are one record.
const MaxHardwareRules = 256

// maxReason limits the reason of a rule.
const maxReason = 256

// Validate rejects rules that mean nothing, or everything by mistake.
func (r HardwareRule) Validate() error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("rule %.80q: %s: %w", r.Name, fmt.Sprintf(format, args...), ErrInvalid)
	}
	if err := ValidateProfileName(r.Name); err != nil {
		return fail("its name is one for a profile: lower-case letters, digits, dots and dashes, at most 64")
	}
	if r.Node != "" {
		if err := ValidateNodeName(r.Node); err != nil {
			return fail("%v", err)
		}
	}
	for _, pattern := range []string{r.Board, r.Firmware, r.NIC} {
		if !plainName(strings.ReplaceAll(pattern, "*", "x"), maxHardwareText) {
			return fail("pattern %.80q: only letters, digits, ._+~:@=- and * for any text", pattern)
		}
	}
	if r.Kernel != "" {
		if ref, err := ParseRef(r.Kernel); err != nil {
			return fail("%v", err)
		} else if ref.IsStock() {
			return fail("a return is named by the kernel that is left, not by stock")
		}
	}
	switch {
	case r.Node+r.Board+r.Firmware+r.NIC+r.Kernel == "":
		return fail("it names no node, board, firmware, network adapter or kernel; for all nodes give the board *")
	case r.Kexec != KexecNever && r.Kexec != KexecNoReturn:
		return fail("kexec %q is neither %s nor %s", r.Kexec, KexecNever, KexecNoReturn)
	case r.By != WayReboot && r.By != WayReset:
		return fail("a return by %q is neither by %s nor by %s", r.By, WayReboot, WayReset)
	case r.Once && (r.Node == "" || r.Kexec != KexecNoReturn):
		return fail("once is for the next return of one node: it needs a node, and kexec %s", KexecNoReturn)
	case len(r.Reason) > maxReason:
		return fail("its reason has %d bytes, at most %d", len(r.Reason), maxReason)
	}
	return nil
}

// Matches reports whether the rule is for this kernel on this node.
func (r HardwareRule) Matches(node string, h Hardware, kernel Ref) bool {
	if r.Node != "" && r.Node != node {
		return false
	}
	if r.Kernel != "" && r.Kernel != kernel.String() && r.Kernel != kernel.Profile {
		return false
	}
	return like(r.Board, h.Board) && like(r.Firmware, h.Firmware) && like(r.NIC, h.NIC)
}

func like(pattern, text string) bool {
	if pattern == "" {
		return true
	}
	expression := "^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$"
	return regexp.MustCompile(expression).MatchString(text)
}

// Why is the rule with its reason, for messages.
func (r HardwareRule) Why() string {
	if r.Reason == "" {
		return "rule " + r.Name
	}
	return fmt.Sprintf("rule %s: %s", r.Name, r.Reason)
}
