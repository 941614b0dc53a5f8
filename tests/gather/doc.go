// SPDX-License-Identifier: Apache-2.0

// Package gather checks the kernel that gathers short writes (ADR 0034): in a
// guest, on ext4 and tmpfs, with the mount option and without, operations are
// done on files and on a model of POSIX, and all that is visible is compared.
// The program that does it is tests/workloads/gather. `make test-long` runs it. `make test-xfstests` runs others' tests of
// file systems on the same.
package gather
