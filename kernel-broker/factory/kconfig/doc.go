// SPDX-License-Identifier: Apache-2.0

// Package kconfig reads what a kernel tree's Kconfig files say, configurations
// and the catalog's fragments of them, and lays fragments over each other. It
// predicts which options go with others, and is no solver: kconfig itself has
// the last word on every configuration.
package kconfig
