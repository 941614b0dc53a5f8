// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/client"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/authz"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/catalog"
	"github.com/kernelbroker/kernelbroker/kernel-broker/doctor"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/admission"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/anybroker"
)

// brokerYAML has the keys of broker.yaml that matter here; the broker checks the rest.
type brokerYAML struct {
	Cluster string `yaml:"cluster"`
	DataDir string `yaml:"data_dir"`
	Listen  string `yaml:"listen"`
	TLS     struct {
		Mode string `yaml:"mode"`
	} `yaml:"tls"`
	Etcd struct {
		Endpoints  []string `yaml:"endpoints"`
		QuotaBytes uint64   `yaml:"quota_bytes"`
	} `yaml:"etcd"`
	Switch struct {
		LoadLimit time.Duration `yaml:"load_limit"`
	} `yaml:"switch"`
	Policy    string `yaml:"policy"`
	TrustList string `yaml:"trust_list"`
}

func defaultBroker() brokerYAML {
	b := brokerYAML{Cluster: "cluster", DataDir: "/var/lib/kernel-broker", Listen: ":7440", Policy: "/etc/kernel-broker/policy.yaml"}
	b.TLS.Mode, b.Etcd.QuotaBytes = "own", quota
	return b
}

// readBroker reads broker.yaml over the defaults.
func readBroker(path string) (brokerYAML, error) {
	b := defaultBroker()
	text, err := os.ReadFile(path)
	if err == nil {
		err = yaml.Unmarshal(text, &b)
	}
	return b, err
}

// quota is that of the embedded etcd by default.
const quota = 512 << 20

// brokerFile reads the broker's configuration on its host, which is slurmctld's.
func (s *surveyor) brokerFile() {
	switch {
	case !s.controller:
		s.site.BrokerFile = doctor.Unknown[doctor.BrokerFile](noController)
		s.site.Database = doctor.Unknown[doctor.Capacity](noController)
		return
	case !exists(s.BrokerFile):
		why := s.BrokerFile + " is not on this host"
		s.site.BrokerFile, s.site.Database = doctor.Unknown[doctor.BrokerFile](why), doctor.Unknown[doctor.Capacity](why)
		return
	}
	b, err := readBroker(s.BrokerFile)
	f := doctor.BrokerFile{Path: s.BrokerFile, Cluster: b.Cluster, TLS: b.TLS.Mode, TrustList: b.TrustList, LoadLimit: b.Switch.LoadLimit}
	if err == nil && exists(b.Policy) {
		var policy authz.State
		if policy, err = authz.Load(b.Policy, nil); err == nil {
			f.Accounts = policy.Policy.Accounts()
		}
	}
	if errors.Is(err, fs.ErrPermission) {
		s.site.BrokerFile = doctor.Unknown[doctor.BrokerFile]("only root may read " + s.BrokerFile + " and its policy")
		s.site.Database = doctor.Unknown[doctor.Capacity]("only root may read " + s.BrokerFile)
		return
	}
	if err != nil {
		f.Error = err.Error()
	}
	s.site.BrokerFile = doctor.Known(f)
	s.database(b)
}

func (s *surveyor) database(b brokerYAML) {
	if len(b.Etcd.Endpoints) > 0 {
		s.site.Database = doctor.Unknown[doctor.Capacity]("etcd is a cluster of its own")
		return
	}
	path := filepath.Join(b.DataDir, "etcd/etcd/member/snap/db")
	info, err := os.Stat(path)
	if err != nil {
		s.site.Database = doctor.Unknown[doctor.Capacity](err.Error())
		return
	}
	s.site.Database = doctor.Known(doctor.Capacity{Name: path, Used: uint64(info.Size()), Limit: b.Etcd.QuotaBytes})
}

func (s *surveyor) dataDir() string {
	b, _ := readBroker(s.BrokerFile) // what it says was told before
	return b.DataDir
}

// ask makes one call.
func ask[C, Q, R any](ctx context.Context, conn grpc.ClientConnInterface, service func(grpc.ClientConnInterface) C,
	method func(C, context.Context, Q, ...grpc.CallOption) (R, error), request Q) (R, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return method(service(conn), ctx, request)
}

// said is the text of a call's error.
func said(err error) string {
	if made, ok := status.FromError(err); ok {
		text := made.Message()
		if _, cause, dialing := strings.Cut(text, "Error while dialing: "); dialing {
			text = strings.TrimSuffix(cause, `"`)
		}
		return text
	}
	return err.Error()
}

// fact is the value of an answer, or why there is none.
func fact[R, T any](answer R, err error, value func(R) T) doctor.Fact[T] {
	if err != nil {
		return doctor.Unknown[T](said(err))
	}
	return doctor.Known(value(answer))
}

// broker asks the broker for everything.
func (s *surveyor) broker(ctx context.Context) {
	conn, address, err := s.Dial(s.nodeSettings())
	var health *api.GetHealthResponse
	begin := time.Now()
	if err == nil {
		health, err = ask(ctx, conn, api.NewHealthServiceClient, api.HealthServiceClient.GetHealth, &api.GetHealthRequest{})
	}
	end := time.Now()
	answer := doctor.Answer{Address: address}
	if err != nil {
		answer.Error = said(err)
		if status.Code(err) == codes.DeadlineExceeded {
			answer.Error = "no answer in time"
		}
	}
	s.site.Broker = doctor.Known(answer)
	if err != nil {
		s.noBroker("the broker does not answer")
		return
	}
	s.site.Health = doctor.Known(healthOf(health, begin, end))
	nodes, err := ask(ctx, conn, api.NewNodeServiceClient, api.NodeServiceClient.ListNodes, &api.ListNodesRequest{})
	s.site.Nodes = fact(nodes, err, nodesOf)
	profiles, err := ask(ctx, conn, api.NewCatalogServiceClient, api.CatalogServiceClient.ListProfiles, &api.ListProfilesRequest{})
	s.site.Profiles = fact(profiles, err, profilesOf)
	room, err := ask(ctx, conn, api.NewCatalogServiceClient, api.CatalogServiceClient.ListArtifacts, &api.ListArtifactsRequest{})
	s.site.Artifacts = fact(room, err, func(r *api.ListArtifactsResponse) doctor.Capacity {
		return doctor.Capacity{Name: "artifacts", Used: r.GetUsedBytes(), Limit: r.GetLimitBytes()}
	})
	trusted, err := ask(ctx, conn, api.NewTrustServiceClient, api.TrustServiceClient.ListCertificates, &api.ListCertificatesRequest{})
	s.site.Certificates = fact(trusted, err, certificatesOf)
	s.site.Revoked = revokedOf(trusted)
	authority, err := ask(ctx, conn, api.NewTrustServiceClient, api.TrustServiceClient.GetAuthority, &api.GetAuthorityRequest{})
	s.site.Authorities = fact(authority, err, authoritiesOf)
	s.ignored(ctx)
}

func (s *surveyor) noBroker(why string) {
	s.site.Health = doctor.Unknown[doctor.Health](why)
	s.site.Nodes, s.site.Profiles = doctor.Unknown[[]doctor.Node](why), doctor.Unknown[[]kb.Profile](why)
	s.site.Artifacts = doctor.Unknown[doctor.Capacity](why)
	s.site.Certificates, s.site.Authorities = doctor.Unknown[map[string][]doctor.Certificate](why), doctor.Unknown[[]doctor.Certificate](why)
}

func healthOf(r *api.GetHealthResponse, begin, end time.Time) doctor.Health {
	h := doctor.Health{Version: r.GetVersion(), Ill: map[string]string{}, Warned: map[string]string{}}
	if r.GetNow() != nil {
		ahead := r.GetNow().AsTime().Sub(begin.Add(end.Sub(begin) / 2))
		h.Ahead = &ahead
	}
	for _, c := range r.GetComponents() {
		if !c.GetHealthy() {
			h.Ill[c.GetName()] = c.GetDetail()
		}
		if c.GetWarning() != "" {
			h.Warned[c.GetName()] = c.GetWarning()
		}
	}
	return h
}

func nodesOf(r *api.ListNodesResponse) []doctor.Node {
	var list []doctor.Node
	for _, n := range r.GetNodes() {
		list = append(list, doctor.Node{
			Name: n.GetName(), Connected: n.GetConnected(), Phase: convert.Word(n.GetPhase()), Cause: n.GetCause(),
			AgentVersion: n.GetAgentVersion(), Inventory: convert.InventoryFromProto(n.GetInventory()),
		})
	}
	return list
}

func profilesOf(r *api.ListProfilesResponse) []kb.Profile {
	var list []kb.Profile
	for _, p := range r.GetProfiles() {
		list = append(list, convert.ProfileFromProto(p))
	}
	return list
}

// certificatesOf leaves out nodes that an administrator revoked, and those that have a token to come with.
func certificatesOf(r *api.ListCertificatesResponse) map[string][]doctor.Certificate {
	nodes := map[string][]doctor.Certificate{}
	for _, n := range r.GetNodes() {
		if good := goodOf(n); len(good) > 0 || n.GetRevokedAt() == nil && n.GetTokenExpires() == nil {
			nodes[n.GetNode()] = good
		}
	}
	return nodes
}

// revokedOf are the nodes that were revoked and have got neither a certificate nor a token since.
func revokedOf(r *api.ListCertificatesResponse) (nodes []string) {
	for _, n := range r.GetNodes() {
		if n.GetRevokedAt() != nil && n.GetTokenExpires() == nil && len(goodOf(n)) == 0 {
			nodes = append(nodes, n.GetNode())
		}
	}
	return nodes
}

func goodOf(n *api.NodeTrust) (good []doctor.Certificate) {
	for _, c := range n.GetCertificates() {
		if !c.GetRevoked() {
			good = append(good, doctor.Certificate{From: c.GetNotBefore().AsTime(), Until: c.GetNotAfter().AsTime()})
		}
	}
	return good
}

func authoritiesOf(r *api.GetAuthorityResponse) []doctor.Certificate {
	var list []doctor.Certificate
	parsed, _ := mtls.ParseCertificates([]byte(r.GetAuthorities())) // the broker uses them itself
	for _, c := range parsed {
		list = append(list, timesOf(c))
	}
	return list
}

func timesOf(c *x509.Certificate) doctor.Certificate {
	name, _ := mtls.NameOf(c) // an authority has none
	return doctor.Certificate{From: c.NotBefore, Until: c.NotAfter, Cluster: name.Cluster}
}

// imagesLimit is for the images of all kernels together.
const imagesLimit = time.Minute

var errImages = fmt.Errorf("the images were not all read within %v", imagesLimit)

// ignored reads the configuration of each kernel with arguments that need one, from its image.
func (s *surveyor) ignored(ctx context.Context) {
	ctx, cancel := context.WithTimeoutCause(ctx, imagesLimit, errImages)
	defer cancel()
	s.site.Ignored = map[kb.Ref]doctor.Fact[string]{}
	if s.site.Profiles.Value == nil {
		return
	}
	for _, p := range *s.site.Profiles.Value {
		for _, v := range p.Versions {
			if arguments := doctor.Arguments(v.Kernel); len(arguments) > 0 && v.Retired == nil {
				s.site.Ignored[v.Kernel.Ref()] = s.ignoredBy(ctx, v.Kernel, arguments)
			}
		}
	}
}

func (s *surveyor) ignoredBy(ctx context.Context, k kb.Kernel, arguments []string) doctor.Fact[string] {
	unknown := func(err error) doctor.Fact[string] {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return doctor.Unknown[string](fmt.Sprintf("the image of %s: %s", k.Ref(), said(err)))
	}
	if err := context.Cause(ctx); err != nil {
		return unknown(err)
	}
	dir, err := os.MkdirTemp("", "kernelctl-doctor-")
	if err != nil {
		return unknown(err)
	}
	defer os.RemoveAll(dir)
	image := filepath.Join(dir, "bzImage")
	file, err := os.Create(image)
	if err != nil {
		return unknown(err)
	}
	if err := errors.Join(s.Fetch(ctx, k.ImageDigest, k.ImageSize, file), file.Close()); err != nil {
		return unknown(err)
	}
	config, err := admission.ConfigOf(ctx, image, filepath.Join(dir, "none"))
	switch {
	case err != nil:
		return unknown(err)
	case config == nil:
		return unknown(errors.New("it carries no configuration (CONFIG_IKCONFIG)"))
	}
	if err := kb.CheckHonoured(arguments, config.On); err != nil {
		text, _, _ := strings.Cut(err.Error(), " (a recipe's")
		return doctor.Known(strings.ReplaceAll(text, "\n", "; "))
	}
	return doctor.Known("")
}

// snapshot compares this host's file with the broker's, without its time.
func (s *surveyor) snapshot(ctx context.Context, path string) {
	f := doctor.Snapshot{Path: path}
	text, err := readSome(path, maxText)
	if err != nil {
		f.Error = err.Error()
		s.site.Snapshot = doctor.Known(f)
		return
	}
	if f.Closed = closedToUsers(ctx, path); f.Closed != "" {
		s.site.Snapshot = doctor.Known(f)
		return
	}
	if s.site.Health.Value == nil {
		s.site.Snapshot = doctor.Unknown[doctor.Snapshot](s.site.Health.Why)
		return
	}
	conn, _, err := s.Dial(nil)
	if err == nil {
		var r *api.GetSnapshotResponse
		r, err = ask(ctx, conn, api.NewCatalogServiceClient, api.CatalogServiceClient.GetSnapshot, &api.GetSnapshotRequest{})
		f.Stale = catalog.SnapshotBody(r.GetSnapshot()) != catalog.SnapshotBody(string(text))
	}
	s.site.Snapshot = doctor.Known(f)
	if err != nil {
		s.site.Snapshot = doctor.Unknown[doctor.Snapshot](said(err))
	}
}

// port connects to the broker's port for agents as a node would, without a certificate of its own.
func (s *surveyor) port(ctx context.Context) {
	address, secured := s.agentsPort()
	if address == "" {
		s.site.Port = doctor.Unknown[doctor.Port]("this host reaches the broker by its socket, and has no agent")
		return
	}
	p := doctor.Port{Answer: doctor.Answer{Address: address}}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn, err := dialAny(ctx, address)
	if err != nil {
		p.Error = err.Error()
		s.site.Port = doctor.Known(p)
		return
	}
	defer conn.Close()
	if secured {
		// Only the certificate's end is read here: no secret is sent, and calls are authenticated elsewhere.
		shaken := tls.Client(conn, &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, InsecureSkipVerify: true}) // #nosec G402 -- see above
		if err := shaken.HandshakeContext(ctx); err != nil {
			p.Error = err.Error()
		} else if shown := shaken.ConnectionState().PeerCertificates; len(shown) > 0 {
			c := timesOf(shown[0])
			p.Certificate = &c
		}
	}
	s.site.Port = doctor.Known(p)
}

// dialAny connects to the first address that answers of a list with commas; sockets are left out.
func dialAny(ctx context.Context, list string) (conn net.Conn, err error) {
	addresses := slices.DeleteFunc(anybroker.Split(list), client.Local)
	err = fmt.Errorf("%q has no address on the network", list)
	for _, address := range addresses {
		if conn, err = (&net.Dialer{Timeout: limit / time.Duration(len(addresses))}).DialContext(ctx, "tcp", address); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// agentsPort is the broker's address for agents and whether it has TLS, as this host knows it best.
func (s *surveyor) agentsPort() (address string, secured bool) {
	if a := s.site.Agent.Value; a != nil && a.Error == "" {
		return s.agentConfig.Broker, a.TLS != "none"
	}
	if f := s.site.BrokerFile.Value; f != nil && f.Error == "" {
		b, _ := readBroker(s.BrokerFile) // it could be read before
		host, port, err := net.SplitHostPort(b.Listen)
		if err != nil {
			return b.Listen, false
		}
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			host = "localhost"
		}
		address := net.JoinHostPort(host, cmp.Or(port, "7440"))
		if f := s.site.Client.Value; f != nil && !f.Local {
			address += "," + s.client.Broker // another broker may act, and this one waits
		}
		return address, f.TLS != "none"
	}
	if f := s.site.Client.Value; f != nil && !f.Local {
		return s.client.Broker, f.TLS
	}
	return "", false
}
