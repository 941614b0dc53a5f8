// SPDX-License-Identifier: Apache-2.0

// Package workload holds the programs that kernels are trained and measured
// with, as data: catalog/workloads/<name>.yaml names programs of our own or
// Debian packages, how they are set up, run and checked, and with which seed
// and size for training and for testing.
//
// A workload becomes a guest's root file system and script. The script marks
// what counts: it, or a program in it, meets the markers that the plugin kbcount
// knows, and writes to /out/regions what each region was and how many operations
// it had. Packages are downloaded and unpacked, never installed.
//
// Adding an application takes a file in the catalog and no code.
package workload
