// SPDX-License-Identifier: Apache-2.0

// Package limit bounds what each of many callers uses: how often (Rates), how
// much at the same time (Semaphore), and how many log lines (LogSampler).
// Callers are named by strings. Memory is bounded: entries that equal a new one
// are dropped, and beyond DefaultKeep the remaining callers share one entry.
package limit
