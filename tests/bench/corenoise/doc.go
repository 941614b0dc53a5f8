// SPDX-License-Identifier: Apache-2.0

// Package corenoise counts what interrupts an application on each core of a guest, on one kernel without and with a core
// that is kept for the system.
//
// On each core but the first a thread computes, and the collector noise of the product looks at what takes the core away.
// After that rtla, the kernel's own tool, looks at the same beside a thread of the kernel.
// Times are the emulator's, where one host thread plays all cores; how often something comes is the guest's.
package corenoise
