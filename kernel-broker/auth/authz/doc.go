// SPDX-License-Identifier: Apache-2.0

// Package authz decides who may do what, says why, and records each answer.
//
// A Policy decides: Decide is a pure function of the policy and a question.
// There are no rules that forbid. What no rule allows is denied, so the order
// of rules never matters and one line answers why. Administrators may do
// everything, builders may publish kernels, and every known user may look.
// Rules per profile say who may use it and who may publish it; the default's
// rules apply to a profile without its own. The rights of administrators and
// builders depend on where they come from, too: on the broker's host unless the
// policy names other places. Root on one node can be any user to MUNGE, but
// not from anywhere.
//
// Load reads the policy's file, and is stricter than YAML: an unknown key, an
// impossible name, a rule that says nothing, an empty value and every alias is
// an error with its line.
//
// An Authorizer holds the policy in force, looks up what the policy asks of a
// user, and records the answers. Calls come to it from the server, jobs from
// the controller. An unreadable policy is an error at the start; later the
// policy in force stays in force, and Health says so until the file is good.
package authz
