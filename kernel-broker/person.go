// SPDX-License-Identifier: Apache-2.0

package kernelbroker

// Person is a user as the broker's host knows one.
type Person struct {
	UID    uint32
	Name   string
	Groups []string
}
