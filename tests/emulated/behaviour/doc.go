// SPDX-License-Identifier: Apache-2.0

// Package behaviour checks on an emulated cluster what users can do with
// kernels and see of them: every way to submit, arrays, heterogeneous jobs,
// reuse, cancels, odd input. No kernel is needed for it.
package behaviour
