// SPDX-License-Identifier: Apache-2.0

// Package bench measures what a switch costs on the virtual cluster: a job
// with a kernel profile, phase by phase, beside what nobody can do without.
//
// The idea: figures of one machine say nothing alone, so each is measured
// beside its reference in the same run. Two clusters are up at once, one with
// the product and one of plain Slurm, and the measurements take turns on them,
// so that what disturbs the machine disturbs both. The plain cluster gives the
// references: a hand-made kexec of the same kernel (the floor), a reset, the
// start of a stock job, and the start of a job that waited for another one.
//
// Times are of the host's clock. What the nodes' own clocks say is not used,
// since an emulated machine's may lag.
package bench
