// SPDX-License-Identifier: Apache-2.0

// Package credential is what a user's proof says and when it counts.
//
// A proof that only says who somebody is can be taken from one call and shown
// with another. So what the user's munged vouches for is a Claim: this method,
// this message, at this cluster's broker, once. The client writes it, and the
// broker's Verifier compares it with the call that it came with. How the
// vouching is done is somebody else's business: an Encoder and a Decoder are
// all that is seen of MUNGE here.
//
// Of a stream the first message is bound. For an upload that is enough: it
// names the digest and the size of all that follows, and nothing else is
// stored. Answers are not bound to anything; that is the transport's part.
package credential
