// SPDX-License-Identifier: Apache-2.0

package etcdserver_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
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

// TestFirstStartSurvivesKill kills servers that begin: the next start makes what they have not, whatever is there of it.
func TestFirstStartSurvivesKill(t *testing.T) {
	var takes time.Duration
	half := 0
	for round := range 2 * killRounds {
		dir := t.TempDir()
		cmd := child(t, "writer", dir, "first")
		begun := time.Now()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if round > 0 {
			time.Sleep(takes/2 + rand.N(takes/2)) // the first half is the start of the program
		}
		for round == 0 && !etcdserver.HasData(dir) {
			time.Sleep(time.Millisecond)
			takes = time.Since(begun)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it reports the kill
		if _, err := os.Stat(filepath.Join(dir, "etcd", "member")); err == nil && !etcdserver.HasData(dir) {
			half++
		}
		server := startServer(t, etcdserver.Config{Dir: dir})
		s := openStore(t, server)
		put(t, s, "k", "v")
		if err := errors.Join(s.Close(), server.Close()); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d of %d kills left half of a server", half, 2*killRounds)
}

// A server that does not become ready ends with an error, and does not hang. Its log has no member: it was killed before
// there was one.
func TestServerThatNeverIsReady(t *testing.T) {
	dir := t.TempDir()
	server := startServer(t, etcdserver.Config{Dir: dir})
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Glob(filepath.Join(dir, "etcd/member/wal/*.wal"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("%v, %v", logs, err)
	}
	// Of the log only what is written before its first entry: checksum, metadata and an empty snapshot.
	whole, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	clear(whole[beforeEntries(whole):])
	if err := errors.Join(os.WriteFile(logs[0], whole, 0o600), os.RemoveAll(filepath.Join(dir, "etcd/member/snap")), os.Mkdir(filepath.Join(dir, "etcd/member/snap"), 0o700)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := etcdserver.Start(ctx, etcdserver.Config{Dir: dir, Logger: quiet}); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "not ready in time") {
		t.Errorf("Start = %v", err)
	}
}

// beforeEntries is the length of the first three records of a log: each has eight bytes with its length, and padding.
func beforeEntries(log []byte) (n int) {
	for range 3 {
		size := binary.LittleEndian.Uint64(log[n:])
		n += 8 + int(size&(1<<56-1)) + int(size>>56&7)
	}
	return n
}
