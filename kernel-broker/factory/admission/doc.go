// SPDX-License-Identifier: Apache-2.0

// Package admission checks a given kernel before anything of
// it is stored: is it an image that kexec can boot, is it what its papers say,
// has it what the node's agent needs to prove it and to leave it again, and does
// it boot.
//
// What an image says of itself is read from its header, from the notes of the
// kernel inside and from the configuration that it may carry; what it can do is
// shown by a guest that boots it, looks at its drivers, and loads it once more
// with kexec. What the image itself shows takes precedence over its description.
package admission
