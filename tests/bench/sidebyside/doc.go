// SPDX-License-Identifier: Apache-2.0

// Package sidebyside runs every workload of a bench on every one of its kernels
// and puts the results side by side: each application on every other one's
// kernel, and what the kernels were to reach. It builds kernels and measures
// them with the factory's own steps, so that it shares their results.
package sidebyside
