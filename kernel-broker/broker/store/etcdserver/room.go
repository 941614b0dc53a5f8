// SPDX-License-Identifier: Apache-2.0

package etcdserver

import (
	"context"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/embed"
)

// defragPause is the least time between two defragmentations of a database that is not full: no commit is made meanwhile.
const defragPause = time.Hour

// tend gives the room that compaction freed back to the disk, and has a server that was full take writes again. The
// function it returns ends that and waits for it.
func tend(etcd *embed.Etcd, cfg Config) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		var last time.Time
		ticker := time.NewTicker(cfg.Tend)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if pays(room{etcd.Server.Backend().Size(), etcd.Server.Backend().SizeInUse(), cfg.Quota}, time.Since(last)) {
				last = time.Now()
				if err := etcd.Server.Defragment(); err != nil {
					cfg.Logger.Warn("etcd not defragmented", "error", err)
				}
			}
			if err := disarm(ctx, etcd, nearly(cfg.Quota)); err != nil && ctx.Err() == nil {
				cfg.Logger.Warn("etcd stays full", "error", err)
			}
		}
	})
	return func() { cancel(); done.Wait() }
}

// room is what a database takes of the disk, what of that it uses, and what it may take.
type room struct{ size, used, quota int64 }

// pays reports whether a defragmentation gains enough: half of the file, or a tenth of the quota where that is nearly
// reached. The second does not wait.
func pays(r room, since time.Duration) bool {
	free := r.size - r.used
	if r.size >= nearly(r.quota) && free >= r.quota/10 {
		return true
	}
	return free >= defragAtLeast<<20 && free >= r.size/2 && since >= defragPause
}

// nearly is where a database counts as full.
func nearly(quota int64) int64 { return quota / 10 * 9 }

// disarm clears the alarm of a server that was full and whose database is below a size. etcd keeps it until an administrator
// clears it. A start tries below the whole quota, since nothing has used the room that it made; a running server waits until
// there is some, or it would be full again at once.
func disarm(ctx context.Context, etcd *embed.Etcd, below int64) error {
	alarms, err := etcd.Server.Alarm(ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_GET})
	if err != nil {
		return fmt.Errorf("alarms: %w", err)
	}
	for _, alarm := range alarms.Alarms {
		if alarm.Alarm != pb.AlarmType_NOSPACE || etcd.Server.Backend().Size() >= below {
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
