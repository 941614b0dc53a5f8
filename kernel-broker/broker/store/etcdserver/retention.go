// SPDX-License-Identifier: Apache-2.0

package etcdserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
)

// Shares of the quota: history is dropped early when its share exceeds the first, and again when the second is reached.
const (
	historyShare  = 4
	historyGrowth = 16
)

// compactEarly drops history early when writes are frequent. Hourly compaction keeps an hour of writes, and a full store
// rejects every write. Writes since the previous check stay: a list of many pages that began before continues.
func compactEarly(ctx context.Context, etcd *embed.Etcd, quota int64, every time.Duration, log *slog.Logger) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	r := compaction{quota: quota}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		used := etcd.Server.Backend().SizeInUse()
		to := r.next(used, etcd.Server.KV().Rev())
		if to == 0 {
			continue
		}
		_, err := etcd.Server.Compact(ctx, &pb.CompactionRequest{Revision: to, Physical: true})
		switch {
		case err == nil:
			log.Info("history dropped early: many writes", "bytes_in_use", used, "quota", quota)
		case ctx.Err() == nil && !errors.Is(err, mvcc.ErrCompacted):
			log.Warn("history not dropped", "error", err)
		}
	}
}

// compaction decides which history to drop.
type compaction struct {
	quota   int64
	before  int64 // revision at the previous check
	dropped bool  // at the previous check
	rest    int64 // in use when it was
}

// next returns the revision before which to drop history, or 0.
func (r *compaction) next(used, revision int64) (to int64) {
	if r.dropped {
		r.dropped, r.rest = false, used
	}
	before := r.before
	r.before = revision
	if before == 0 || used < max(r.quota/historyShare, r.rest+r.quota/historyGrowth) {
		return 0
	}
	r.dropped = true
	return before
}

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
