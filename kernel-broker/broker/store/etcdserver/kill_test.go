// SPDX-License-Identifier: Apache-2.0

package etcdserver_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdserver"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdstore"
)

const killRounds = 8

func TestMain(m *testing.M) {
	if os.Getenv("ETCDSERVER_TEST_ROLE") == "writer" {
		if err := writeForever(os.Args[1], os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "writer:", err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// writeForever is the program that gets killed. It prints a key when, and only
// when, its commit was acknowledged. Each commit writes two keys.
func writeForever(dir, round string) error {
	ctx := context.Background()
	server, err := etcdserver.Start(ctx, etcdserver.Config{Dir: dir, Logger: quiet})
	if err != nil {
		return err
	}
	s, err := etcdstore.Open(ctx, etcdstore.Config{Endpoints: []string{server.Endpoint()}, Cluster: "test", Logger: quiet})
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		key := fmt.Sprintf("%s-%06d", round, i)
		_, err := s.Commit(ctx,
			store.Write{Key: "left/" + key, Value: []byte(key)},
			store.Write{Key: "right/" + key, Value: []byte(key)})
		if err != nil {
			return err
		}
		fmt.Println(key)
	}
}

// TestAcknowledgedCommitsSurviveKill kills the process, not the machine: no acknowledged commit exists only in the
// process. TestCommitsAreSynced checks fsync.
func TestAcknowledgedCommitsSurviveKill(t *testing.T) {
	dir := t.TempDir()
	var acknowledged []string
	for round := range killRounds {
		keys := writeAndKill(t, dir, fmt.Sprint("r", round))
		acknowledged = append(acknowledged, keys...)
		checkSurvivors(t, dir, acknowledged)
		if t.Failed() {
			t.Fatalf("round %d of %d", round+1, killRounds)
		}
	}
	t.Logf("%d rounds, %d acknowledged commits", killRounds, len(acknowledged))
}

// writeAndKill returns the keys that the killed writer had acknowledged.
func writeAndKill(t *testing.T, dir, round string) []string {
	t.Helper()
	cmd := child(t, "writer", dir, round)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var keys []string
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			break // a line without its end was not printed whole
		}
		if len(keys) == 0 {
			delay := time.Duration(rand.Int64N(int64(400 * time.Millisecond)))
			time.AfterFunc(delay, func() { _ = cmd.Process.Kill() })
		}
		keys = append(keys, strings.TrimSuffix(line, "\n"))
	}
	if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Fatalf("writer ended by itself: %v", err)
	}
	return keys
}

func checkSurvivors(t *testing.T, dir string, acknowledged []string) {
	t.Helper()
	server := startServer(t, etcdserver.Config{Dir: dir})
	s := openStore(t, server)
	left, right := revisions(t, s, "left/"), revisions(t, s, "right/")
	for _, key := range acknowledged {
		if left[key] == 0 {
			t.Errorf("acknowledged key %s is lost", key)
		}
	}
	if len(left) != len(right) {
		t.Errorf("%d left keys and %d right ones: half a commit was kept", len(left), len(right))
	}
	for key, revision := range left {
		if right[key] != revision {
			t.Errorf("key %s: left at revision %d, right at %d", key, revision, right[key])
		}
	}
	if err := errors.Join(s.Close(), server.Close()); err != nil {
		t.Fatal(err)
	}
}

func revisions(t *testing.T, s store.Store, prefix string) map[string]int64 {
	t.Helper()
	records, _, err := s.List(t.Context(), prefix)
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]int64, len(records))
	for _, r := range records {
		key := strings.TrimPrefix(r.Key, prefix)
		if string(r.Value) != key {
			t.Errorf("key %s has the value %q", r.Key, r.Value)
		}
		found[key] = r.Revision
	}
	return found
}
