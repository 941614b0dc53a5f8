// SPDX-License-Identifier: Apache-2.0

// Package emulated runs a whole Slurm cluster with the product on one host, in seconds and without virtual machines.
// MUNGE, slurmctld, the slurmds, the broker, its hooks, the agents, the gate and job_submit.lua are the real programs;
// only a node's kernel is emulated. A node is a set of namespaces whose /proc shows its kernel, and kexec, power and
// reset replace them. So everything about Slurm can be tested here, on several of its versions; tests/lab covers real
// kernels.
package emulated
