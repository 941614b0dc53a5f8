// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"context"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/config"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/client"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdserver"
	"github.com/kernelbroker/kernelbroker/kernel-broker/doctor"
)

func write(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestQuotaIsTheBrokers(t *testing.T) {
	if quota != etcdserver.DefaultQuota {
		t.Errorf("%d here, %d there", quota, etcdserver.DefaultQuota)
	}
}

// build compiles one of the product's programs.
func build(t *testing.T, to, program string) string {
	t.Helper()
	cmd := exec.Command("go", "build", "-o", to, "github.com/kernelbroker/kernelbroker/kernel-broker/cmd/"+program)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return to
}

func TestWhatIs(t *testing.T) {
	dir := t.TempDir()
	ours := build(t, filepath.Join(dir, "epilog"), "kernel-broker-node-hook")
	renamed := filepath.Join(dir, "prolog-slurmctld")
	if err := os.Link(ours, renamed); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]doctor.ProgramIs{
		ours:    doctor.ProgramOurs,
		renamed: doctor.ProgramOther, // it would act as another hook
		write(t, dir+"/script", "#!/bin/sh\nsite-check && exec /usr/libexec/kernel-broker/epilog\n", 0o755):           doctor.ProgramCallsOurs,
		write(t, dir+"/comment", "#!/bin/sh\n# /usr/libexec/kernel-broker/epilog\n: # kernel-broker/epilog\n", 0o755): doctor.ProgramOther,
		write(t, dir+"/site", "#!/bin/sh\n:\n", 0o755):                                                                doctor.ProgramOther,
		write(t, dir+"/plain", "#!/bin/sh\n:\n", 0o644):                                                               doctor.ProgramNotExecutable,
		dir + "/none": doctor.ProgramMissing, dir: doctor.ProgramMissing,
	} {
		if got := whatIs(path, "epilog"); got != want {
			t.Errorf("%s is %s, want %s", filepath.Base(path), got, want)
		}
	}
	if got := expand(dir + "/s*"); len(got) != 2 {
		t.Errorf("a pattern is %v", got)
	}
	if got := expand(dir + "/none"); len(got) != 1 || got[0] != dir+"/none" {
		t.Errorf("what is not there is %v", got)
	}
}

func TestReadPlugstack(t *testing.T) {
	dir := t.TempDir()
	main := write(t, dir+"/plugstack.conf", "required a.so\ninclude plugstack.conf.d/*.conf\n", 0o644)
	write(t, dir+"/plugstack.conf.d/kb.conf", "optional /x/kernel_profile.so snapshot=/s\n", 0o644)
	lines, err := readPlugstack(main, 0)
	if err != nil || len(lines) != 2 || !lines[1].Ours() || lines[1].Word != "optional" {
		t.Errorf("%+v, %v", lines, err)
	}
	write(t, dir+"/plugstack.conf.d/kb.conf", "include "+main+"\n", 0o644)
	if _, err := readPlugstack(main, 0); err == nil {
		t.Error("a file may include itself for ever")
	}
	if _, err := readPlugstack(dir+"/none", 0); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that there is not: %v", err)
	}
}

func TestPluginVersion(t *testing.T) {
	dir := t.TempDir()
	source := write(t, dir+"/p.c", "const char plugin_name[] = \"x\"; const unsigned int plugin_version = (24 << 16) + (11 << 8) + 5;\n", 0o644)
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-o", dir+"/p.so", source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	version, err := pluginVersion(dir + "/p.so")
	if err != nil || doctor.SlurmRelease(version) != "24.11" {
		t.Errorf("%s, %v", doctor.SlurmRelease(version), err)
	}
	for _, path := range []string{source, dir + "/none", "/bin/true"} {
		if _, err := pluginVersion(path); err == nil {
			t.Errorf("%s has a version", path)
		}
	}
}

// The plugin is compared with this host's Slurm, which loads it: slurmctld may be of a later release.
func TestPluginOfOlderSlurmThanSlurmctld(t *testing.T) {
	dir := t.TempDir()
	scontrol := write(t, dir+"/scontrol", "#!/bin/sh\n[ \"$*\" = --version ] && echo slurm-wlm 24.11.5\n", 0o755)
	slurmctld := doctor.ParseSlurmConfig("SLURM_VERSION = 25.05.1\n")
	s := &surveyor{client: client.Config{Scontrol: scontrol}, site: &doctor.Site{Slurm: doctor.Known(slurmctld)}}
	if p := s.pluginFile(t.Context(), dir+"/none"); p.Installed != "24.11" {
		t.Errorf("this host's Slurm is %q, want 24.11", p.Installed)
	}
}

func TestReportsBoots(t *testing.T) {
	for text, want := range map[string]bool{
		"SLURMD_OPTIONS=\"-M -b\"\n": true, "# SLURMD_OPTIONS=-b\n": false, "SLURMD_OPTIONS='-b'\n": true, "SLURMD_OPTIONS=--conf-server=bb\n": false,
		"": false, "OTHER=-b\n": false, "SLURMD_OPTIONS=\"\"\n": false,
	} {
		if reportsBoots(text) != want {
			t.Errorf("%q is not %v", text, want)
		}
	}
}

func TestWaitsForAgent(t *testing.T) {
	dir := t.TempDir()
	if waitsForAgent(dir + "/*.conf") {
		t.Error("nothing waits")
	}
	text, err := os.ReadFile("../../../packaging/systemd/slurmd.service.d/kernel-broker.conf")
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/kernel-broker.conf", string(text), 0o644)
	if !waitsForAgent(dir + "/*.conf") {
		t.Error("the product's own drop-in is not recognised")
	}
}

func TestReadBroker(t *testing.T) {
	sample := "../../cmd/kernel-broker/broker.sample.yaml"
	b, err := readBroker(sample)
	if err != nil {
		t.Fatal(err)
	}
	want := defaultBroker()
	want.Switch.LoadLimit = 2 * time.Minute
	want.Etcd.Endpoints = []string{}
	if b.DataDir != want.DataDir || b.Listen != want.Listen || b.TLS != want.TLS || b.Policy != want.Policy || b.Switch != want.Switch || b.TrustList != "" || len(b.Etcd.Endpoints) != 0 {
		t.Errorf("the sample is %+v, the defaults %+v", b, want)
	}
	if _, err := readBroker(write(t, t.TempDir()+"/b.yaml", "tls: [\n", 0o644)); err == nil {
		t.Error("a file that is no YAML is read")
	}
}

func TestHealthOf(t *testing.T) {
	begin := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	h := healthOf(&api.GetHealthResponse{Version: "1", Now: timestamppb.New(begin.Add(11 * time.Second)),
		Components: []*api.Component{{Name: "store", Detail: "no leader"}, {Name: "slurm", Healthy: true, Warning: "slow"}}}, begin, begin.Add(2*time.Second))
	if h.Ahead == nil || *h.Ahead != 10*time.Second || len(h.Ill) != 1 || h.Ill["store"] != "no leader" || len(h.Warned) != 1 || h.Warned["slurm"] != "slow" {
		t.Errorf("%+v", h)
	}
	if h := healthOf(&api.GetHealthResponse{}, begin, begin); h.Ahead != nil {
		t.Errorf("an older broker's clock is %v ahead", h.Ahead)
	}
}

func TestCertificatesOf(t *testing.T) {
	now := timestamppb.Now()
	answer := &api.ListCertificatesResponse{Nodes: []*api.NodeTrust{
		{Node: "good", Certificates: []*api.Certificate{{Revoked: true}, {NotBefore: now, NotAfter: now}}},
		{Node: "ended"}, {Node: "revoked", RevokedAt: now, Certificates: []*api.Certificate{{Revoked: true}}}, {Node: "invited", TokenExpires: now},
		{Node: "invited again", RevokedAt: now, TokenExpires: now},
		{Node: "admitted again", RevokedAt: now, Certificates: []*api.Certificate{{Revoked: true}, {NotBefore: now, NotAfter: now}}},
	}}
	got := certificatesOf(answer)
	_, ended := got["ended"]
	if len(got) != 3 || len(got["good"]) != 1 || len(got["admitted again"]) != 1 || !ended {
		t.Errorf("%+v", got)
	}
	if revoked := revokedOf(answer); !slices.Equal(revoked, []string{"revoked"}) {
		t.Errorf("revoked: %q", revoked)
	}
}

// The certificate that the port shows, and the node's own one.
func TestCertificates(t *testing.T) {
	served := httptest.NewUnstartedServer(http.NotFoundHandler())
	served.EnableHTTP2 = true
	served.StartTLS()
	defer served.Close()
	want := timesOf(served.Certificate())
	agent := config.Config{Broker: served.Listener.Addr().String()}
	s := &surveyor{agentConfig: agent, site: &doctor.Site{Agent: doctor.Known(doctor.Agent{TLS: "own"})}}
	if s.port(t.Context()); s.site.Port.Value == nil || s.site.Port.Value.Error != "" || *s.site.Port.Value.Certificate != want {
		t.Errorf("%+v", s.site.Port)
	}
	dir := t.TempDir()
	s.agentConfig.TLS = config.TLS{Mode: config.TLSOwn, Dir: dir}
	if c := nodeCertificate(s.agentConfig); c.Value != nil || !strings.Contains(c.Why, "no such file") {
		t.Errorf("no certificate: %+v", c)
	}
	text := mtls.EncodeCertificates([]*x509.Certificate{served.Certificate()})
	write(t, dir+"/node.pem", string(text), 0o600)
	if c := nodeCertificate(s.agentConfig); c.Value == nil || *c.Value != want {
		t.Errorf("the node's certificate: %+v", c)
	}
	if list := authoritiesOf(&api.GetAuthorityResponse{Authorities: string(text)}); len(list) != 1 || list[0] != want {
		t.Errorf("the authorities: %+v", list)
	}
	served.Close()
	if s.port(t.Context()); s.site.Port.Value == nil || s.site.Port.Value.Error == "" {
		t.Errorf("a port that nobody serves: %+v", s.site.Port)
	}
}

// A compute node has no client.yaml, or its package's: its agent's settings reach the broker.
func TestNodeSettings(t *testing.T) {
	dir := t.TempDir()
	s := &surveyor{Options: Options{Config: dir + "/client.yaml"}, client: client.DefaultConfig(), site: &doctor.Site{}}
	if s.nodeSettings() != nil {
		t.Error("no node has an agent's settings")
	}
	s.site.Agent = doctor.Known(doctor.Agent{})
	s.agentConfig = config.Config{Broker: "front:7440", TLS: config.TLS{Mode: config.TLSOwn, Dir: dir}}
	if c := s.nodeSettings(); c == nil || c.Broker != "front:7440" || c.Trust.CA != dir+"/ca.pem" || c.Munge == "" {
		t.Errorf("%+v", c)
	}
	s.agentConfig.TLS.Mode = config.TLSNone
	if c := s.nodeSettings(); c == nil || c.Trust.CA != "" {
		t.Errorf("without TLS: %+v", c)
	}
	write(t, s.Config, "", 0o644) // as the package leaves it
	if c := s.nodeSettings(); c == nil || c.Broker != "front:7440" {
		t.Errorf("with the package's client.yaml: %+v", c)
	}
	s.client.Broker = "front:7440"
	if s.nodeSettings() != nil {
		t.Error("client.yaml does not count")
	}
}

// On a host without anything, every fact is unknown with a reason, or a finding.
func TestCollectOnAnEmptyHost(t *testing.T) {
	dir := t.TempDir()
	o := Options{
		Config:     write(t, dir+"/client.yaml", "scontrol: "+dir+"/scontrol\nslurm_conf: "+dir+"/slurm.conf\n", 0o644),
		BrokerFile: dir + "/broker.yaml", AgentFile: dir + "/agent.yaml",
		Dial: func(*client.Config) (*grpc.ClientConn, string, error) {
			return nil, "unix:///none", errors.New("nobody is there")
		},
	}
	site, err := Collect(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range doctor.Examine(site, nil) {
		want := map[string]doctor.Outcome{"broker-answers": doctor.Found, "plugstack": doctor.Found, "client-file": doctor.Passed}[r.Check]
		if want == "" {
			want = doctor.NotPossible
		}
		if r.Outcome != want {
			t.Errorf("%s: %s %v %+v, want %s", r.Check, r.Outcome, r.Why, r.Findings, want)
		}
	}
}

// A scontrol that hangs or prints something else is an answer of slurmctld's, not an end of the survey.
func TestSlurmThatDoesNotAnswer(t *testing.T) {
	dir := t.TempDir()
	for script, words := range map[string]string{
		"#!/bin/sh\necho 'Unable to contact slurm controller' >&2; exit 1\n":   "Unable to contact",
		"#!/bin/sh\necho nonsense\n":                                           "no SLURM_VERSION",
		"#!/bin/sh\n[ \"$SLURM_CONF\" ] || echo SLURM_VERSION = 1.2; exit 0\n": "no SLURM_VERSION",
	} {
		o := Options{Config: write(t, dir+"/client.yaml", "scontrol: "+write(t, dir+"/scontrol", script, 0o755)+"\nslurm_conf: /x/slurm.conf\n", 0o644),
			BrokerFile: dir + "/b", AgentFile: dir + "/a", Dial: func(*client.Config) (*grpc.ClientConn, string, error) { return nil, "", errors.New("nobody") }}
		site, err := Collect(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		if a := site.Slurmctld.Value; a == nil || !strings.Contains(a.Error, words) || site.Slurm.Value != nil {
			t.Errorf("%q: %+v", script, a)
		}
	}
}
