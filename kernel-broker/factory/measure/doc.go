// SPDX-License-Identifier: Apache-2.0

// Package measure counts what a kernel does for a workload. The workload runs
// in a guest whose clock counts instructions, and the plugin kbcount (in C, in
// the folder plugin) counts what is executed between the workload's markers,
// apart for user and kernel.
//
// The result are samples: figures per operation for each region of the
// workload. On one CPU and without a disk a run repeats to the instruction, so
// it is made once and says that it is exact; else it is made several times.
//
// Instructions are not time. Mispredictions and misses of caches and translation
// buffers are a model's, and have luck of the code's layout in them; the models of
// data take the host up to a third more processor time. The method itself costs
// the guest one instruction for each marker and nothing else: it does not know
// that it is counted, since its clock does not move while the plugin works.
package measure
