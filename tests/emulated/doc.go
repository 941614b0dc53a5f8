// SPDX-License-Identifier: Apache-2.0

// Package emulated runs a whole Slurm cluster with the product on one host, in
// seconds and without virtual machines. MUNGE, slurmctld, the slurmds, the
// broker, its hooks, the agents, the gate and job_submit.lua are the real
// programs; a node's kernel is not. A node is a set of namespaces whose /proc
// says which kernel it runs, and kexec, power and reset end them and begin new
// ones. So everything that has to do with Slurm can be tested here, on several
// versions of it, and what has to do with kernels is tests/lab's.
package emulated
