// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"context"
	"fmt"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
)

// Size is the size of the database, which other programs may share, and how much of it is in use. Of a cluster it is that
// of one member.
func (s *Store) Size(ctx context.Context) (size, used int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	for _, endpoint := range s.client.Endpoints() {
		status, problem := s.client.Status(ctx, endpoint)
		if problem == nil {
			return status.DbSize, status.DbSizeInUse, nil
		}
		err = fmt.Errorf("size of %s: %w: %w", endpoint, store.ErrUnavailable, problem)
	}
	return 0, 0, err
}
