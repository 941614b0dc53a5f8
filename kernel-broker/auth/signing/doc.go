// SPDX-License-Identifier: Apache-2.0

// Package signing says which kernels a node may boot.
//
// The publisher of a kernel signs a manifest of it, and the node
// holds a list of the keys that it trusts. What lies between the two, the
// broker, its store, the network, the node's own cache, can then lose or delay
// a kernel but not replace one.
//
// A Manifest names everything that decides what boots: the digests and sizes
// of image and initrd, the arguments, the proof that the kernel must give
// afterwards, what it needs of a node; and what keeps a true signature from
// being used in a wrong place or too late: the cluster, the profile with its
// version, the expiry, and the floor, the lowest version of the profile that a
// node may boot once it has seen this manifest. It is written in one way only,
// as JSON, in a DSSE envelope.
//
// Sign makes an envelope, ParseTrust reads the list of keys, and Verify, which
// is pure, compares an envelope, the list, the kernel that is wanted, what the
// node remembers, and the time.
package signing
