// SPDX-License-Identifier: Apache-2.0

// Package build makes kernels: from a recipe in the catalog to a bootable
// image with a manifest that says exactly what it is.
//
// A build is a row of steps, each with inputs and an output:
//
//	source    a Debian source package, a tarball or a commit, unpacked and
//	          patched once                                       (Builder.Fetch)
//	config    tinyconfig with the recipe's fragments and then the overlays of
//	          variant, optimisation and slimming laid over it, checked that
//	          every option asked for is still there          (Builder.Configure)
//	compile   make bzImage, with nothing of the machine or the day in it, and a
//	          manifest of what came out                        (Builder.Compile)
//
// Each can be called by itself with all its inputs named: package pipeline makes
// a graph of them, with runs of kernels in between, which stores results under
// the digest of their inputs.
//
// # Variants and their object folders
//
// A configuration is compiled plain, instrumented (it counts what is executed),
// traced (plain, with the linker's map) or optimised (with a profile, by package
// pgo). Builds of one source, compiler and set of flags share a folder of
// objects, one after the other, whose path never changes: kbuild then compiles
// only what another configuration changes, and Compile only the objects whose
// counters another profile changes. Where a folder's last build did not come to
// an end, its objects cannot be trusted, and it begins again.
//
// A profile fits a kernel whose source stands in the same place as that of the
// counting one, which the cache sees to.
//
// Distribution takes the other way to a kernel: Debian's own package, opened
// without installing it.
//
// The package runs programs (make, dpkg, apt-get, xz, git, patch) and writes
// only below its cache and output folders.
package build
