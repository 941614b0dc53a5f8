// Package factory makes kernels: from a recipe in the catalog to a bootable
// image with a manifest that says exactly what it is.
//
// A build is a row of steps, each with inputs and an output:
//
//	source    a Debian source package, unpacked once per version
//	config    tinyconfig with the recipe's fragments laid over it
//	survival  every option that a fragment asks for is still there
//	build     make bzImage, with nothing of the machine or the day in it, in an
//	          object folder that all kernels of one source share
//	manifest  digests, build id, drivers: what the broker and agents need
//
// The result is stored under the digest of all its inputs (source, fragments,
// recipe, compiler). The same inputs are never built twice: a second run finds
// the result, two runs at once make one build, and a killed run leaves nothing
// that could be taken for a result, since it is moved into place at the end.
//
// Distribution takes the other way to a kernel: Debian's own package, opened
// without installing it.
//
// The package runs programs (make, dpkg, apt-get, xz) and writes only below
// its cache and output folders.
package factory
