// SPDX-License-Identifier: Apache-2.0

// Package slim finds out what a kernel can do without, from a run of it.
//
// The way from a run to a fragment is a row of small questions, each answered
// by a pure function over files:
//
//	which addresses ran        ReadTrace: the blocks that the emulator ran
//	to which object each is    ReadLinkMap, Measure: ranges, not names, since
//	                           two functions may have one name
//	what jobs used besides     Uses.AddRuns: names from their profiling runs
//	which option builds it     ReadKbuild: the makefiles, for all
//	                           configurations at once
//	what hangs on the option   ReadKconfig, Without: depends and select
//	what must stay anyway      ReadKeepLists, KeepHardware: what no run under
//	                           emulation can know
//	what goes, and why         Propose
//
// A proposal is a guess. Slim has kconfig look at it first, then builds the
// kernel, boots it and puts it to work, all by an interface that the pipeline
// fills in. Where the kernel fails, Search finds the option to blame in few
// tries and keeps it with the reason. Outcome.Fragment writes it all down, so
// that users can read why each option went or stayed.
package slim
