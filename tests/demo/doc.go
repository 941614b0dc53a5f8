// SPDX-License-Identifier: Apache-2.0

// Package demo is the main job as a story with checks: an ordinary user asks
// for a kernel, two nodes boot into it and back, and every claim that the story
// makes is compared with what the nodes themselves say.
package demo
