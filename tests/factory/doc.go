// SPDX-License-Identifier: Apache-2.0

// Package factory shows the kernel factory at work: the real kernelctl makes
// real kernels of the small catalog in testdata, from the source to the verdict,
// and every way in which a build can go wrong is gone through with them. `make
// test-long` runs it.
//
// What takes long is done once. The suite has a folder of its own in the
// project's cache, whose kernels are found again by the next run; a change to
// the factory's code or to anything that a build is made of empties it first,
// so that what is found there was made by the code that is tested. What is not
// a matter of the kernel's bytes, such as being killed, is done anew each time,
// with objects from ccache.
package factory
