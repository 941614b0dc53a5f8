// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"log/slog"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/signing"
)

// newSignatureCheck judges signatures when a kernel is registered, so that a mistake is
// found by who makes it and not by the first job. The broker has no key, and no
// node asks it whom to trust. The list is read each time.
func newSignatureCheck(c config, log *slog.Logger) (func(kb.Kernel, []byte) error, error) {
	if c.TrustList == "" {
		return sameKernel, nil
	}
	if _, err := signing.ReadTrust(c.TrustList, nil); err != nil {
		return nil, err
	}
	log.Info("kernels must be signed to be registered", "trust_list", c.TrustList)
	return func(k kb.Kernel, envelope []byte) error {
		trust, err := signing.ReadTrust(c.TrustList, nil)
		if err != nil {
			return err
		}
		_, err = signing.Verify(envelope, trust, k, signing.Memory{}, time.Now())
		if errors.Is(err, signing.ErrUnsigned) && k.Ref().IsStock() && len(k.Arguments) == 0 {
			return nil // the nodes take it where it is a file of their own
		}
		return err
	}, nil
}

// sameKernel lets everything through but a signature of something else.
func sameKernel(k kb.Kernel, envelope []byte) error {
	if len(envelope) == 0 {
		return nil
	}
	m, _, err := signing.Peek(envelope)
	if err != nil {
		return err
	}
	return m.Describes(k)
}
