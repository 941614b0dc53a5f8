// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/link"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/client"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/digest"
)

// ownHost is a broker's host with a data folder that nobody else has.
type ownHost struct {
	*controllerHost
	c            *controllers
	name         string
	data, listen string
	more         string // of its broker.yaml
}

func (c *controllers) own(name, more string) *ownHost {
	c.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	h := &ownHost{c: c, name: name, data: filepath.Join(c.t.TempDir(), name), listen: l.Addr().String(), more: more}
	if err := errors.Join(l.Close(), os.Mkdir(h.data, 0o755)); err != nil {
		c.t.Fatal(err)
	}
	return h
}

// pair is a broker that acts, and one with its key that has not begun.
func (c *controllers) pair() (first, second *ownHost) {
	c.t.Helper()
	first, second = c.own("one", "policy: ''\n"), c.own("two", "policy: ''\n")
	first.start()
	c.acts(first.controllerHost)
	copyFile(c.t, filepath.Join(first.data, "store.key"), filepath.Join(second.data, "store.key"))
	return first, second
}

func (h *ownHost) start() {
	h.c.t.Helper()
	h.controllerHost = h.c.startWith(h.name, h.data, h.data+".socket", fmt.Sprintf("listen: '%s'\nsnapshot: %s/snapshot\npeers: {listen: '127.0.0.1:0'}\n%s", h.listen, h.data, h.more))
}

func (h *ownHost) kill() {
	h.c.t.Helper()
	h.c.signal(h.controllerHost, syscall.SIGKILL)
	_ = h.Wait()
}

// dial reaches the broker from its host.
func (h *ownHost) dial() *grpc.ClientConn {
	h.c.t.Helper()
	conn, err := client.Dial("unix://"+h.socket, client.Trust{})
	if err != nil {
		h.c.t.Fatal(err)
	}
	h.c.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func upload(t *testing.T, conn *grpc.ClientConn, text []byte) string {
	t.Helper()
	stream, err := api.NewCatalogServiceClient(conn).UploadArtifact(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	name := digest.Of(text)
	for at := 0; at < len(text); at += 1 << 20 {
		m := &api.UploadArtifactRequest{Data: text[at:min(at+1<<20, len(text))]}
		if at == 0 {
			m.Digest, m.Size = name, uint64(len(text))
		}
		if err := stream.Send(m); err != nil {
			break
		}
	}
	if _, err := stream.CloseAndRecv(); err != nil {
		t.Fatal(err)
	}
	return name
}

func register(t *testing.T, conn *grpc.ClientConn, name, image string, size int, arguments ...string) error {
	t.Helper()
	_, err := api.NewCatalogServiceClient(conn).ApplyProfile(t.Context(), &api.ApplyProfileRequest{RequestId: name, Reason: "test", Profile: convert.ProfileToProto(kb.Profile{
		Name: name, Application: "test", Description: "a test", DefaultVersion: 1, Reuse: kb.ReuseSameProfile, Fallback: kb.FallbackHold, BootAttempts: 2, BootTimeout: time.Minute,
		Versions: []kb.ProfileVersion{{Kernel: kb.Kernel{Profile: name, Version: 1, ImageDigest: image, ImageSize: uint64(size), Arguments: arguments,
			BuildID: strings.Repeat("ab", 20), Release: "6.1.0-" + name, Architecture: "x86_64"}}},
	})})
	return err
}

func fetch(ctx context.Context, conn *grpc.ClientConn, name string) ([]byte, error) {
	stream, err := api.NewCatalogServiceClient(conn).FetchArtifact(ctx, &api.FetchArtifactRequest{Digest: name})
	if err != nil {
		return nil, err
	}
	var all []byte
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, m.GetData()...)
	}
}

func (h *ownHost) file(name string) string {
	hex := strings.TrimPrefix(name, "sha256:")
	return filepath.Join(h.data, "artifacts", "sha256", hex[:2], hex)
}

// gets waits for a file on the host.
func (h *ownHost) gets(path string) []byte {
	h.c.t.Helper()
	var text []byte
	h.c.come(h.name+" has "+path, func() (is bool) {
		var err error
		text, err = os.ReadFile(path)
		return err == nil
	})
	return text
}

// copyFile is what an administrator does with the key of the store.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func random(t *testing.T, size int) []byte {
	t.Helper()
	text := make([]byte, size)
	_, _ = rand.Read(text)
	return text
}

func (h *ownHost) copies(conn *grpc.ClientConn) *api.Component {
	h.c.t.Helper()
	health, err := api.NewHealthServiceClient(conn).GetHealth(h.c.t.Context(), &api.GetHealthRequest{})
	if err != nil {
		h.c.t.Fatal(err)
	}
	for _, c := range health.GetComponents() {
		if c.GetName() == "copies" {
			return c
		}
	}
	h.c.t.Fatal("no row copies")
	return nil
}

// enrol gives a node its certificate.
func (h *ownHost) enrol(node string) mtls.Source {
	t := h.c.t
	t.Helper()
	token, err := api.NewTrustServiceClient(h.dial()).CreateNodeToken(t.Context(), &api.CreateNodeTokenRequest{Node: node})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte(token.GetToken()), 0o600); err != nil {
		t.Fatal(err)
	}
	e := link.NewEnroller(link.EnrolOptions{Node: node, Broker: h.listen, Paths: mtls.NodePaths(filepath.Join(dir, "tls")), TokenFile: filepath.Join(dir, "token"), Log: quiet})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { e.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	<-e.Ready()
	return e.Source()
}

// Two brokers have a data folder each. The first dies with its disk: the second serves the kernel to a node that the first
// admitted, by the same policy and trust list.
func TestDeathWithTheDisk(t *testing.T) {
	c := newControllers(t)
	policy, list := filepath.Join(t.TempDir(), "policy.yaml"), filepath.Join(t.TempDir(), "trust.yaml")
	text, err := os.ReadFile("../../auth/signing/trust.sample.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(policy, []byte("administrators:\n  users: [root]\ndefault:\n  use: []\n"), 0o600),
		os.WriteFile(list, bytes.ReplaceAll(text, []byte("cluster: cluster"), []byte("cluster: hpc")), 0o600)); err != nil {
		t.Fatal(err)
	}
	first, second := c.own("one", "policy: "+policy+"\ntrust_list: "+list+"\n"), c.own("two", "policy: /none/policy.yaml\n")
	first.start()
	c.acts(first.controllerHost)

	// Without the key the second one ends, and says what helps.
	second.start()
	if err := second.Wait(); err == nil || !strings.Contains(second.out.String(), "store.key: no such file") || !strings.Contains(second.out.String(), "from another broker's host") {
		t.Errorf("without the key: %v, %s", err, second.out.String())
	}
	copyFile(t, filepath.Join(first.data, "store.key"), filepath.Join(second.data, "store.key"))
	second.start()
	c.waits(second.controllerHost)

	image := random(t, 3<<20)
	conn := first.dial()
	name := upload(t, conn, image)
	if err := register(t, conn, "stock", name, len(image)); err != nil {
		t.Fatal(err)
	}
	node := first.enrol("n1")
	if got := second.gets(second.file(name)); !bytes.Equal(got, image) {
		t.Errorf("the copy has %d bytes", len(got))
	}
	c.come("the second has the snapshot", func() bool {
		text, err := os.ReadFile(filepath.Join(second.data, "snapshot"))
		return err == nil && strings.Contains(string(text), "profile stock")
	})
	public := second.gets(filepath.Join(second.data, "ca.pem"))
	if own := first.gets(filepath.Join(first.data, "ca.pem")); !bytes.Equal(own, public) {
		t.Error("two authorities")
	}
	if h := first.copies(conn); h.GetWarning() != "" || !h.GetHealthy() {
		t.Errorf("%v", h)
	}

	first.kill()
	if err := os.RemoveAll(first.data); err != nil {
		t.Fatal(err)
	}
	c.acts(second.controllerHost)
	agent, err := grpc.NewClient(second.listen, grpc.WithTransportCredentials(credentials.NewTLS(mtls.ClientConfig(node, "hpc"))))
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	if got, err := fetch(t.Context(), agent, name); err != nil || !bytes.Equal(got, image) {
		t.Errorf("the node gets %d bytes, %v", len(got), err)
	}
	conn = second.dial()
	if p, err := api.NewPolicyServiceClient(conn).GetPolicy(t.Context(), &api.GetPolicyRequest{}); err != nil || !strings.Contains(p.GetText(), "use: []") {
		t.Errorf("policy %v, %v", p, err)
	}
	if err := register(t, conn, "mitgcm", name, len(image), "quiet"); err == nil || !strings.Contains(err.Error(), "sign") {
		t.Errorf("an unsigned kernel is registered: %v", err)
	}
	if text, err := os.ReadFile(filepath.Join(second.data, "ca.pem")); err != nil || !bytes.Equal(text, public) {
		t.Errorf("another authority, %v", err)
	}
}

// What no record needs, as a run's result whose broker no longer acts, comes from it when somebody reads it.
func TestResultsOfABrokerThatWaits(t *testing.T) {
	c := newControllers(t)
	first, second := c.pair()
	second.start()
	c.waits(second.controllerHost)
	result := random(t, 2<<20)
	name := upload(t, first.dial(), result)
	c.signal(first.controllerHost, syscall.SIGSTOP)
	c.acts(second.controllerHost)
	conn := second.dial()
	if _, err := os.Stat(second.file(name)); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the second has it already: %v", err)
	}
	c.signal(first.controllerHost, syscall.SIGCONT)
	c.waits(first.controllerHost)
	if got, err := fetch(t.Context(), conn, name); err != nil || !bytes.Equal(got, result) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	first.kill()
	gone := digest.Of([]byte("gone"))
	if _, err := fetch(t.Context(), conn, gone); err == nil || !strings.Contains(err.Error(), "not on this host") {
		t.Errorf("one that nobody has: %v", err)
	}
}

// A broker that is killed again and again while it copies has a whole file under a name, or none.
func TestCopyIsKilled(t *testing.T) {
	c := newControllers(t)
	first, second := c.pair()
	image := random(t, 64<<20)
	conn := first.dial()
	name := upload(t, conn, image)
	if err := register(t, conn, "stock", name, len(image)); err != nil {
		t.Fatal(err)
	}
	parts := 0
	for range kills / 2 {
		second.start()
		temporary := filepath.Join(filepath.Dir(second.file(name)), ".*")
		c.come("the copy begins", func() bool {
			left, err := filepath.Glob(temporary)
			return err == nil && len(left) > 0
		})
		second.kill()
		if _, err := os.Stat(second.file(name)); err == nil {
			if have, _, err := digest.File(second.file(name)); err != nil || have != name {
				t.Fatalf("%s has %s, %v", second.file(name), have, err)
			}
			if err := os.Remove(second.file(name)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		parts++
	}
	t.Logf("%d of %d kills left a part", parts, kills/2)
	second.start()
	if got := second.gets(second.file(name)); digest.Of(got) != name {
		t.Errorf("%d bytes of %d", len(got), len(image))
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(second.file(name)), ".*")); err != nil || len(left) > 0 {
		t.Errorf("%q is left, %v", left, err)
	}
	if h := first.copies(conn); h.GetWarning() != "" {
		t.Errorf("%v", h)
	}
	second.kill()
	if err := os.Remove(first.file(name)); err != nil {
		t.Fatal(err)
	}
	c.come("it is missing everywhere", func() bool {
		h := first.copies(conn)
		return !h.GetHealthy() && strings.Contains(h.GetDetail(), "stock@1")
	})
}

// Who asks for what no broker has that runs hears which others may have it: those that have acted.
func TestWhoMayHaveAResult(t *testing.T) {
	c := newControllers(t)
	conf := defaults()
	conf.Etcd.Endpoints = []string{c.etcd}
	asks := &exchange{c: conf, kept: c.kept, host: "ctl2"}
	for _, host := range []string{"ctl1", "ctl2", "ctl3"} {
		if err := (&exchange{c: conf, kept: c.kept, host: host}).acts(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if text := asks.elsewhere(t.Context(), []string{"ctl3"}); !strings.Contains(text, "do not run: ctl1, which last began to act at") || strings.Contains(text, "ctl2") || strings.Contains(text, "ctl3") {
		t.Errorf("%q", text)
	}
	if text := asks.elsewhere(t.Context(), []string{"ctl1", "ctl3"}); text != "" {
		t.Errorf("all run: %q", text)
	}
}
