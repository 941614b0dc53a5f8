// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/config"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/enrol"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/link"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
)

// certificates returns the node's credentials for the broker and, if the agent manages them itself, their enroller.
func certificates(c config.Config, log *slog.Logger) (*enrol.Enroller, mtls.Source) {
	switch c.TLS.Mode {
	case config.TLSNone:
		log.Warn("TLS IS OFF (tls.mode: none): any host at the broker's address can make this node boot any kernel", "broker", c.Broker)
		return nil, nil
	case config.TLSSite:
		return nil, mtls.NewFiles(mtls.Paths{Certificate: c.TLS.Certificate, Key: c.TLS.Key, Authorities: c.TLS.Authorities})
	}
	enroller := enrol.New(enrol.Options{
		Node: c.Node, Broker: c.Broker, Paths: mtls.NodePaths(c.TLS.Dir), TokenFile: c.TLS.Token, Dial: link.Dial, Log: log,
	})
	return enroller, enroller.Source()
}

// certified waits until the node has a certificate; a broker would refuse it before.
func certified(ctx context.Context, enroller *enrol.Enroller) bool {
	if enroller == nil {
		return true
	}
	select {
	case <-enroller.Ready():
		return true
	case <-ctx.Done():
		return false
	}
}
