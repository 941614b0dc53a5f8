// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/sealed"
	"github.com/kernelbroker/kernelbroker/tests/support/memstore"
)

// Brokers that start again, or after each other, have one authority. Whoever reads the store has not its key.
func TestTheKeyIsTheBrokersAlone(t *testing.T) {
	s := newSite(t)
	first := s.authority.Fingerprint()
	s.open()
	if s.authority.Fingerprint() != first {
		t.Error("a broker that starts again has another authority")
	}
	rec, err := s.store.Get(t.Context(), s.generations()[0])
	if err != nil || bytes.Contains(rec.Value, []byte("PRIVATE")) || bytes.Contains(rec.Value, []byte("CERTIFICATE")) {
		t.Errorf("%s, %v", rec.Value, err)
	}
}

// ownFiles writes generations as earlier versions kept them.
func ownFiles(t *testing.T, s *site) (dir string) {
	t.Helper()
	dir = t.TempDir()
	list, err := s.secrets.List(t.Context(), AuthorityPrefix)
	if err != nil {
		t.Fatal(err)
	}
	for i, secret := range list {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("ca-%04d.pem", i*3)), secret.Text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The files of an earlier version become records at once, whatever dies meanwhile; then they count no more.
func TestFilesAreImported(t *testing.T) {
	from := newSite(t)
	node := from.enrol("n1")
	if _, err := from.registry.Rotate(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	dir := ownFiles(t, from)
	for _, moment := range []memstore.Moment{memstore.Before, memstore.After} {
		kept := memstore.New()
		s := &site{t: t, clock: from.clock, store: kept}
		var err error
		if s.secrets, err = sealed.Open(t.Context(), kept, sealed.Options{Cluster: "lab", File: from.file, Begin: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenAuthority(t.Context(), s.options()); !errors.Is(err, kb.ErrNotFound) {
			t.Errorf("a broker that waits: %v", err)
		}
		kept.FailCommits(1, moment)
		if _, err := Found(t.Context(), s.options(), dir); err == nil {
			t.Error("a commit that failed is none")
		}
		files, err := Found(t.Context(), s.options(), dir)
		if err != nil || files != 2 && moment == memstore.Before {
			t.Errorf("%d files, %v", files, err)
		}
		if files, err := Found(t.Context(), s.options(), t.TempDir()); err != nil || files != 0 {
			t.Errorf("once more: %d files, %v", files, err)
		}
		if s.authority, err = OpenAuthority(t.Context(), s.options()); err != nil {
			t.Fatal(err)
		}
		if got := s.generations(); len(got) != 2 || !strings.HasSuffix(got[1], "0003") || s.authority.Fingerprint() != from.authority.Fingerprint() {
			t.Errorf("%q", got)
		}
		if s.registry, err = OpenRegistry(t.Context(), RegistryOptions{Store: kept, Cluster: "lab", Authority: s.authority, Log: slog.New(slog.DiscardHandler), Now: s.clock.Now}); err != nil {
			t.Fatal(err)
		}
		if _, serverErr, clientErr := shake(t, s.server(), mtls.ClientConfig(node, "lab")); serverErr != nil || clientErr != nil {
			t.Errorf("a node from before: %v, %v", serverErr, clientErr)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != 2 {
		t.Errorf("the folder has %q", left)
	}
}

// A rotation by the acting broker reaches one that waits, and the file for clients of its host.
func TestRefresh(t *testing.T) {
	s := newSite(t)
	o := s.options()
	o.Public = filepath.Join(t.TempDir(), "ca.pem")
	waits, err := OpenAuthority(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	fingerprint, err := s.registry.Rotate(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	own, err := waits.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	if err := waits.Refresh(t.Context()); err != nil || waits.Fingerprint() != fingerprint {
		t.Errorf("%v", err)
	}
	fresh, err := waits.Certificate()
	if err != nil || fresh == own {
		t.Errorf("it shows the certificate of the old key, %v", err)
	}
	if err := waits.Refresh(t.Context()); err != nil {
		t.Error(err)
	}
	if again, err := waits.Certificate(); err != nil || again != fresh {
		t.Errorf("another certificate without a reason, %v", err)
	}
	text, err := os.ReadFile(o.Public)
	if err != nil {
		t.Fatal(err)
	}
	if list, err := mtls.ParseCertificates(text); err != nil || len(list) != 2 {
		t.Errorf("%d in the file, %v", len(list), err)
	}
}

func TestWhatCannotBeAnAuthority(t *testing.T) {
	s := newSite(t)
	node := s.enrol("n1")
	key, err := mtls.EncodeKey(newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(filepath.Join(ownFiles(t, s), "ca-0000.pem"))
	if err != nil {
		t.Fatal(err)
	}
	leaf := mtls.EncodeCertificates([]*x509.Certificate{node.pair.Leaf})
	for _, c := range []struct {
		what, file string
		text       []byte
		mode       os.FileMode
		is         error
	}{
		{"not PEM", "ca-0000.pem", []byte("x"), 0o600, kb.ErrInvalid},
		{"no key", "ca-0000.pem", leaf, 0o600, kb.ErrInvalid},
		{"another's key", "ca-0000.pem", append(leaf, key...), 0o600, kb.ErrInvalid},
		{"no number", "ca-0001.old.pem", good, 0o600, kb.ErrInvalid},
		{"others may read it", "ca-0000.pem", good, 0o640, kb.ErrDenied},
	} {
		path := filepath.Join(t.TempDir(), c.file)
		if err := os.WriteFile(path, c.text, c.mode); err != nil {
			t.Fatal(err)
		}
		s.remove(s.generations()...)
		if _, err := Found(t.Context(), s.options(), filepath.Dir(path)); !errors.Is(err, c.is) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	for _, o := range []Options{{Cluster: "Lab", Host: "ctl"}, {Cluster: "lab", Host: "c t"}} {
		o.Secrets = s.secrets
		if _, err := OpenAuthority(t.Context(), o); !errors.Is(err, kb.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// Who comes, with what, to whom: real TLS over loopback.
func TestHandshakes(t *testing.T) {
	s, other := newSite(t), newSite(t)
	good, foreign := s.enrol("n1"), other.enrol("n1")
	// A certificate of a stranger's authority, whose owner trusts ours.
	foreign.authorities = good.authorities
	broker, err := s.authority.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	stolen := &source{pair: &tls.Certificate{Certificate: good.pair.Certificate, PrivateKey: foreign.pair.PrivateKey}, authorities: good.authorities}
	old := mtls.ClientConfig(good, "lab")
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	for _, c := range []struct {
		name           string
		client         *tls.Config
		who            string
		server, saying string
	}{
		{name: "a node", client: mtls.ClientConfig(good, "lab"), who: "kernel-broker://lab/node/n1"},
		{name: "anybody", client: mtls.ClientConfig(&source{authorities: good.authorities}, "")},
		{name: "with the token's fingerprint", client: mtls.PinnedConfig(s.authority.Fingerprint())},
		{name: "with another's fingerprint", client: mtls.PinnedConfig(other.authority.Fingerprint()), saying: "not the broker with that fingerprint"},
		{name: "another authority's node", client: mtls.ClientConfig(foreign, "lab"), server: "unknown authority"},
		{name: "a node that trusts another authority", client: mtls.ClientConfig(other.enrol("n1"), "lab"), saying: "unknown authority"},
		{name: "a node of another cluster", client: mtls.ClientConfig(good, "prod"), saying: `not a broker of cluster "prod"`},
		{name: "with the broker's certificate", client: mtls.ClientConfig(&source{pair: broker, authorities: good.authorities}, "lab"), server: "incompatible key usage"},
		{name: "a certificate without its key", client: mtls.ClientConfig(stolen, "lab"), server: "invalid signature"},
		{name: "TLS 1.2", client: old, server: "unsupported versions"},
	} {
		who, serverErr, clientErr := shake(t, s.server(), c.client)
		got := ""
		if !who.Name.IsZero() {
			got = who.Name.String()
		}
		if c.server == "" && c.saying == "" {
			if got != c.who || serverErr != nil || clientErr != nil {
				t.Errorf("%s: is %q, %v, %v", c.name, got, serverErr, clientErr)
			}
			continue
		}
		if clientErr == nil || c.server != "" && (serverErr == nil || !strings.Contains(serverErr.Error(), c.server)) ||
			!strings.Contains(clientErr.Error(), c.saying) {
			t.Errorf("%s: broker says %v, node says %v", c.name, serverErr, clientErr)
		}
	}
}

// A node poses as the broker to another node: its role does not allow it.
func TestANodeIsNoBroker(t *testing.T) {
	s := newSite(t)
	node := s.enrol("n1")
	_, _, err := shake(t, mtls.ServerConfig(node, "lab", s.registry.Accept), mtls.ClientConfig(s.enrol("n2"), "lab"))
	if !errors.Is(err, kb.ErrUnauthenticated) {
		t.Errorf("%v", err)
	}
}

func TestCertificatesEnd(t *testing.T) {
	s := newSite(t)
	s.clock.pass(-lifetime - time.Hour)
	late := s.enrol("n1")
	s.clock.pass(lifetime + time.Hour)
	late.authorities, _ = s.authority.Authorities()
	if _, serverErr, _ := shake(t, s.server(), mtls.ClientConfig(late, "lab")); serverErr == nil || !strings.Contains(serverErr.Error(), "expired") {
		t.Errorf("an expired certificate: %v", serverErr)
	}
}

// The broker's own certificate is another one at two thirds of its life.
func TestTheBrokerRenewsItsOwn(t *testing.T) {
	s := newSite(t)
	serial := func() string {
		c, err := s.authority.Certificate()
		if err != nil {
			t.Fatal(err)
		}
		return c.Leaf.SerialNumber.String()
	}
	first := serial()
	s.clock.pass(lifetime*2/3 - time.Minute)
	if serial() != first {
		t.Error("renewed too early")
	}
	s.clock.pass(2 * time.Minute)
	if serial() == first {
		t.Error("not renewed in time")
	}
}

// After a rotation each combination of old and new understands each other, and
// the old authority is gone when all that it signed has ended.
func TestRotation(t *testing.T) {
	s := newSite(t)
	before := s.enrol("n1")
	// Signed for longer than is now the rule: that counts.
	s.authority.o.Lifetime = time.Hour
	fingerprint, err := s.registry.Rotate(t.Context(), "test")
	s.authority.o.Lifetime = lifetime
	if err != nil {
		t.Fatal(err)
	}
	after := s.enrol("n2")
	if len(before.authorities) != 1 || len(after.authorities) != 2 || mtls.Fingerprint(after.authorities[1]) != fingerprint {
		t.Fatalf("%d and %d authorities", len(before.authorities), len(after.authorities))
	}
	only := &source{pair: after.pair, authorities: after.authorities[1:]}
	for i := range 2 { // the second time as after a restart
		for name, node := range map[string]*source{"from before": before, "from after": after, "that knows only the new": only} {
			if _, serverErr, clientErr := shake(t, s.server(), mtls.ClientConfig(node, "lab")); serverErr != nil || clientErr != nil {
				t.Errorf("round %d: a node %s: %v, %v", i, name, serverErr, clientErr)
			}
		}
		s.open()
	}
	if list, err := s.authority.Authorities(); err != nil || len(list) != 2 {
		t.Fatalf("%d authorities, %v", len(list), err)
	}
	s.clock.pass(lifetime + time.Minute)
	list, err := s.authority.Authorities()
	if err != nil || len(list) != 1 || mtls.Fingerprint(list[0]) != fingerprint {
		t.Fatalf("%d authorities after all, %v", len(list), err)
	}
	if _, serverErr, _ := shake(t, s.server(), mtls.ClientConfig(before, "lab")); serverErr == nil {
		t.Error("the old authority is believed after its time")
	}
}

func TestEveryFileReadsAgain(t *testing.T) {
	s := newSite(t)
	dir := t.TempDir()
	paths := mtls.NodePaths(filepath.Join(dir, "tls"))
	files := mtls.NewFiles(paths)
	if _, err := files.Own(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nothing there: %v", err)
	}
	var serials []string
	for range 2 {
		a := newAsker(t)
		c, err := s.registry.Enrol(t.Context(), "n1", s.token("n1").Secret, a.request)
		if err != nil {
			t.Fatal(err)
		}
		if err := paths.Keep(a.key, c.Chain, c.Authorities); err != nil {
			t.Fatal(err)
		}
		own, err := files.Own()
		if err != nil || own.Name.Name != "n1" {
			t.Fatalf("%+v, %v", own, err)
		}
		serials = append(serials, own.Certificate.SerialNumber.String())
		if _, serverErr, clientErr := shake(t, s.server(), mtls.ClientConfig(files, "lab")); serverErr != nil || clientErr != nil {
			t.Errorf("%v, %v", serverErr, clientErr)
		}
		if err := paths.Keep(newKey(t), c.Chain, c.Authorities); !errors.Is(err, kb.ErrInvalid) {
			t.Errorf("a certificate for another key: %v", err)
		}
	}
	if serials[0] == serials[1] {
		t.Error("a changed file was not read")
	}
	text, err := os.ReadFile(paths.Authorities)
	if err != nil || bytes.Contains(text, []byte("PRIVATE")) {
		t.Errorf("the authorities' file holds a key, or: %v", err)
	}
	if info, err := os.Stat(paths.Key); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key: %v, %v", info.Mode(), err)
	}
	if err := os.Chmod(paths.Key, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := mtls.NewFiles(paths).Certificate(); !errors.Is(err, kb.ErrDenied) {
		t.Errorf("a key that others may read: %v", err)
	}
}
