// SPDX-License-Identifier: Apache-2.0

// Package pgo makes GCC's profile files fit for building a kernel, and judges
// whether the build really used them.
//
// A kernel with GCOV_KERNEL shows one .gcda file for each object below
// /sys/kernel/debug/gcov. GCC 12 takes none of them as they are:
//
//   - They have no object summary, and GCC then throws the whole profile away
//     without a word. WriteFor adds it: 16 bytes after the header, with the
//     largest counter of all files, from which GCC derives what counts as hot.
//   - They carry the path of the instrumented objects. GCC looks for the
//     profile of fs/read_write.o as "fs#read_write.gcda".
//
// So: Load what came out of the guest, Below the folder of the instrumented
// objects, Merge it with other runs, WriteFor a folder, and compile with the
// Flags for that folder. Judge compares what the compiler complained of, and
// the text sections before and after, with limits: a profile that was ignored
// shows as cold code that was not set apart.
//
// # What a mode changes
//
// ModeFull is -fprofile-use. Besides reading the counters this turns on passes
// that plain -O2 has not (-fpeel-loops, -ftracer, -funroll-loops,
// -funswitch-loops, -fsplit-loops, -fipa-cp-clone, -fgcse-after-reload,
// -ftree-loop-distribution, -floop-interchange, -floop-unroll-and-jam,
// -fversion-loops-for-strides, -fpredictive-commoning, and value
// transformations), also in files without a profile.
//
// ModeSafe is -fbranch-probabilities alone, with the same files: the counters
// take the place of GCC's guesses (which way a branch goes, which block and
// which function is hot or cold, hence layout, inlining and size), and the list
// of passes stays that of -O2.
//
// # Written files are canonical
//
// The time stamp is zero, functions stand in the order of the compiler, and a
// file whose counters are all zero does not depend on the largest counter of
// the others. Equal profiles give equal bytes, so that two profiles can be
// compared file by file and only objects whose counters differ are compiled
// again (see Changed).
package pgo
