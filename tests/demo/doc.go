// SPDX-License-Identifier: Apache-2.0

// Package demo shows the main job with checks: an ordinary user requests a kernel, two nodes boot into it and back, and
// every claim is compared with the nodes' own data.
package demo
