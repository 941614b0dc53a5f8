// SPDX-License-Identifier: Apache-2.0

// Package rules holds the rules of this repository as tests: what a reviewer
// would otherwise have to look for in every change. Each rule reads the files
// that git knows or would add, so that a finding comes before the commit. A
// rule that needs an exception has it in a table in its test, with the reason.
package rules
