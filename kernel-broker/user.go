// SPDX-License-Identifier: Apache-2.0

package kernelbroker

// User is an entry of the host's user database.
type User struct {
	UID    uint32
	Name   string
	Groups []string
}
