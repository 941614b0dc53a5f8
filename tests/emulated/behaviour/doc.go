// SPDX-License-Identifier: Apache-2.0

// Package behaviour tests on an emulated cluster what users can do with kernels: every way to submit, arrays,
// heterogeneous jobs, reuse, cancels, odd input. It needs no kernel.
package behaviour
