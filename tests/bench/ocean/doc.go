// SPDX-License-Identifier: Apache-2.0

// Package ocean runs the real MITgcm, from a checkout of its source, as jobs of a
// virtual cluster: on the nodes' own kernel and on that of the profile mitgcm, by
// turns. What the model prints of its state, and all fields that it writes, must
// be the same on both.
package ocean
