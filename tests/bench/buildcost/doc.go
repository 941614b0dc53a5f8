// SPDX-License-Identifier: Apache-2.0

// Package buildcost measures what a kernel's build costs against plain make of
// the same configuration: a first build of a profile, a second profile of the
// same configuration, and a first build by branches in place of counters, all in
// one run and without a compiler cache that is filled already.
//
// What is compared is the processor time of all processes of a build, since it
// depends little on what else the machine does; the time that passed stands
// beside it.
package buildcost
