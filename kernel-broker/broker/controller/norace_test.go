// SPDX-License-Identifier: Apache-2.0

//go:build !race

package controller

// raced: the race detector is in.
const raced = false
