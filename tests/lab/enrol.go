// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
)

// How the lab's nodes get their certificates: as a site's do, by a token on the
// node's disk.

// tlsConfig is the configuration of broker and agents without authentication; it is on by default.
func tlsConfig(o Options) map[string]any {
	if !o.WithoutTLS {
		return nil
	}
	return map[string]any{"tls": map[string]any{"mode": "none"}}
}

// enrolNodes puts a token on the disk of each node.
func (l *Lab) enrolNodes(ctx context.Context) error {
	if l.state.Options.WithoutTLS {
		return nil
	}
	for _, n := range l.Nodes() {
		if err := n.Enrol(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Enrol puts a fresh token on the node's disk, which makes its agent enrol even if it has a certificate.
func (n Node) Enrol(ctx context.Context) error {
	// The front-end's root may read and write the nodes' disks.
	file := insideDir + "/nodes/" + n.name + "/share/etc/kernel-broker/token"
	_, err := n.lab.must(ctx, n.lab.root(), kernelctlPath, "node", "token", n.name, "--ttl", "1h", "--output-file", file)
	if err != nil {
		return fmt.Errorf("node %q: token: %w", n.name, err)
	}
	return nil
}
