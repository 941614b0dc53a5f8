// SPDX-License-Identifier: Apache-2.0

package etcdserver

import (
	"context"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/embed"
)

// disarm clears the alarm of a server that was full. etcd keeps it over restarts until an administrator clears it; here
// compaction has dropped history since, and the start has freed its space.
func disarm(ctx context.Context, etcd *embed.Etcd, quota int64) error {
	alarms, err := etcd.Server.Alarm(ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_GET})
	if err != nil {
		return fmt.Errorf("alarms: %w", err)
	}
	for _, alarm := range alarms.Alarms {
		if alarm.Alarm != pb.AlarmType_NOSPACE || etcd.Server.Backend().Size() >= quota {
			continue
		}
		_, err := etcd.Server.Alarm(ctx, &pb.AlarmRequest{
			Action: pb.AlarmRequest_DEACTIVATE, MemberID: alarm.MemberID, Alarm: alarm.Alarm})
		if err != nil {
			return fmt.Errorf("alarm: %w", err)
		}
	}
	return nil
}
