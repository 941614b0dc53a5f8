// SPDX-License-Identifier: Apache-2.0

// Package suites holds the black-box suites: real slurmctld, slurmd and munge,
// real etcd and real kexecs on the virtual cluster of tests/lab. They need root
// or user namespaces, QEMU, and the kernels of `make kernels`; `make
// test-suites` runs some and `make test-long` the others. Each test leaves its cluster's logs and consoles in
// build/lab/suites/VERSION when it fails.
package suites
