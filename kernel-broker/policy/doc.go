// SPDX-License-Identifier: Apache-2.0

// Package policy decides who may do what, and says why.
//
// Decide is a pure function of the policy and a question. Whoever asks has
// found out who the subject is; nothing is looked up here, and nothing is
// remembered. There are no rules that forbid: what no rule allows is denied, so
// that the order of rules never matters and one line answers why.
//
// Administrators may do everything, builders may publish kernels, and everybody
// who is known may look. For each profile, rules say who may use it and who may
// publish it; a profile of which nothing is said has the default's rules.
//
// The rights of administrators and builders hold where they come from, too: on
// the broker's host unless the policy names other places. Who has root on one
// node of the cluster can be anybody to MUNGE, but not anywhere.
package policy
