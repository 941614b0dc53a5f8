// SPDX-License-Identifier: Apache-2.0

// Package client connects programs on the controller's side to the broker: their common settings
// (/etc/kernel-broker/client.yaml) and the connection.
//
// kernelctl and the Slurm hooks thereby agree on the broker's address. Every setting has a default, so a usual
// installation needs no file.
package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/anybroker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/retryinfo"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/strictyaml"
)

// DefaultPath of the settings.
const DefaultPath = "/etc/kernel-broker/client.yaml"

// Config is the settings. DefaultConfig has their defaults, and client.yaml in
// this folder explains each.
type Config struct {
	Broker    string `yaml:"broker"`
	Trust     Trust  `yaml:",inline"`
	Munge     string `yaml:"munge"`
	Scontrol  string `yaml:"scontrol"`
	SlurmConf string `yaml:"slurm_conf"`
	StateDir  string `yaml:"state_dir"`
	LogFile   string `yaml:"log_file"`
	// RebootProgram is the site's own, for nodes without an agent; empty for none.
	RebootProgram string        `yaml:"reboot_program"`
	BrokerWait    time.Duration `yaml:"broker_wait"`
	PrologLimit   time.Duration `yaml:"prolog_limit"`
	HoldAfter     int           `yaml:"hold_after"`
	// ProfilingWait limits how long a job without a profile waits for its nodes to get ready for a profiling run.
	ProfilingWait time.Duration `yaml:"profiling_wait"`
}

// DefaultConfig returns the settings without a file.
func DefaultConfig() Config {
	return Config{
		Broker:        "unix:///run/kernel-broker/broker.sock",
		Trust:         Trust{CA: "/etc/kernel-broker/ca.pem"},
		Munge:         "/run/munge/munge.socket.2",
		Scontrol:      "/usr/bin/scontrol",
		StateDir:      "/var/lib/kernel-broker/hook",
		BrokerWait:    30 * time.Second,
		PrologLimit:   700 * time.Second,
		HoldAfter:     3,
		ProfilingWait: 12 * time.Second,
	}
}

// LoadConfig reads path. Only at DefaultPath a missing file counts as empty.
func LoadConfig(path string) (Config, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && path == DefaultPath {
		return DefaultConfig(), nil
	}
	if err != nil {
		return Config{}, fmt.Errorf("settings: %w", err)
	}
	return ParseConfig(path, text)
}

// ParseConfig reads the text of a settings file over the defaults; name is for errors.
func ParseConfig(name string, text []byte) (Config, error) {
	if !utf8.Valid(text) {
		return Config{}, fmt.Errorf("%s: not UTF-8: %w", name, kb.ErrInvalid)
	}
	c := DefaultConfig()
	if err := strictyaml.Decode(name, text, &c); err != nil && !errors.Is(err, io.EOF) {
		return Config{}, fmt.Errorf("%w: %w", err, kb.ErrInvalid)
	}
	if err := c.validate(); err != nil {
		return Config{}, fmt.Errorf("%s: %w", name, err)
	}
	return c, nil
}

// Proof returns dial options that authenticate calls to an address; none on the broker's host, where the socket
// suffices. encoder creates an encoder for a munged's socket.
func (c Config) Proof(address string, encoder func(socket string) Encoder) []grpc.DialOption {
	all, err := forms(address)
	if err != nil || !slices.ContainsFunc(all, onNetwork) || c.Munge == "" || encoder == nil {
		return nil
	}
	return prover{encoder(c.Munge), cmp.Or(c.Trust.Cluster, defaultCluster), slices.ContainsFunc(all, onHost)}.options()
}

// defaultCluster is broker.yaml's default cluster name.
const defaultCluster = "cluster"

// maxProfilingWait limits the delay of plain jobs by profiling.
const maxProfilingWait = 10 * time.Minute

// maxHoldAfter limits how many failed runs of a job precede a hold.
const maxHoldAfter = 100

func (c Config) validate() error {
	var wrong []error
	refuse := func(bad bool, key string, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Errorf("%s: %s: %w", key, fmt.Sprintf(format, args...), kb.ErrInvalid))
		}
	}
	// The hooks run without a PATH and from the root folder.
	for key, path := range map[string]string{"scontrol": c.Scontrol, "state_dir": c.StateDir} {
		refuse(!filepath.IsAbs(path), key, "%q is not an absolute path", path)
	}
	for key, path := range map[string]string{"slurm_conf": c.SlurmConf, "log_file": c.LogFile, "reboot_program": c.RebootProgram, "ca": c.Trust.CA} {
		refuse(path != "" && !filepath.IsAbs(path), key, "%q is not an absolute path", path)
	}
	_, err := forms(c.Broker)
	refuse(err != nil, "broker", "%v", err)
	refuse(c.BrokerWait < 0 || c.BrokerWait > c.PrologLimit, "broker_wait", "%v is not within 0s and prolog_limit (%v)", c.BrokerWait, c.PrologLimit)
	refuse(c.PrologLimit < time.Second || c.PrologLimit > 24*time.Hour, "prolog_limit", "%v is not within 1s to 24h", c.PrologLimit)
	refuse(c.ProfilingWait < time.Second || c.ProfilingWait > maxProfilingWait, "profiling_wait", "%v is not within 1s to %v", c.ProfilingWait, maxProfilingWait)
	refuse(c.HoldAfter < 1 || c.HoldAfter > maxHoldAfter, "hold_after", "%d is not within 1 to %d", c.HoldAfter, maxHoldAfter)
	return errors.Join(wrong...)
}

// fallbackKeys are what a hook needs to hold a job.
var fallbackKeys = []string{"scontrol", "slurm_conf", "state_dir", "log_file", "hold_after"}

// FallbackConfig returns settings with which a hook can hold a job when the file at path is invalid: the defaults, with its
// readable paths of Slurm, the log and the hook's own files.
func FallbackConfig(path string) Config {
	c := DefaultConfig()
	text, _ := os.ReadFile(path) // without it these are the defaults
	for line := range strings.Lines(string(text)) {
		key, _, _ := strings.Cut(line, ":")
		read := c
		if slices.Contains(fallbackKeys, key) && strictyaml.Decode(path, []byte(line), &read) == nil && read.validate() == nil {
			c = read
		}
	}
	return c
}

// maxReceive fits the list of all jobs.
const maxReceive = 32 << 20

// Local reports whether a broker's address is a socket of this host; of several, whether all are.
func Local(address string) bool {
	all, err := forms(address)
	return err == nil && !slices.ContainsFunc(all, onNetwork)
}

// forms are an address, or several with commas, in gRPC's form.
func forms(address string) ([]string, error) {
	all := anybroker.Split(address)
	for i, one := range all {
		var err error
		if all[i], err = canonical(one); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func onHost(form string) bool    { return strings.HasPrefix(form, "unix:") }
func onNetwork(form string) bool { return !onHost(form) }

// target returns gRPC's target of an address, or of several.
func target(address string) (string, []grpc.DialOption, error) {
	all, err := forms(address)
	if err != nil {
		return "", nil, err
	}
	if len(all) == 1 {
		return all[0], nil, nil
	}
	for i := range all {
		all[i] = strings.TrimPrefix(all[i], "dns:///")
	}
	to, options := anybroker.Target(all)
	return to, options, nil
}

// canonical converts one address (unix:///path, /path, or host:port) to gRPC's form.
func canonical(address string) (string, error) {
	path, isUnix := strings.CutPrefix(address, "unix:")
	path = strings.TrimPrefix(path, "//")
	if isUnix || strings.HasPrefix(address, "/") {
		if !filepath.IsAbs(path) {
			return "", fmt.Errorf("address %q: the path of the socket is not absolute: %w", address, kb.ErrInvalid)
		}
		return "unix://" + path, nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || port == "" {
		return "", fmt.Errorf("address %q is neither unix:///path nor host:port: %w", address, kb.ErrInvalid)
	}
	return "dns:///" + address, nil
}

// Dial returns a connection to the broker. It does not wait: the first call fails if the broker is away, and a lost
// connection is restored within a second of its return.
func Dial(address string, trust Trust, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	to, several, err := target(address)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(to, slices.Concat([]grpc.DialOption{
		grpc.WithTransportCredentials(trust.transport()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReceive)),
		grpc.WithChainUnaryInterceptor(retry),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 2 * time.Second,
		}),
		// Detects a broker that hangs with an open socket.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
		// A proxy for the web is no way to the broker.
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
	}, several, more)...)
	if err != nil {
		return nil, fmt.Errorf("broker at %s: %w", address, err)
	}
	return conn, nil
}

// Trust is how the broker authenticates over the network. Callers have no certificates.
type Trust struct {
	// CA is the file of the authorities to believe; empty: no TLS.
	CA string `yaml:"ca"`
	// Cluster of the broker; empty: any.
	Cluster string `yaml:"cluster"`
}

// transport returns the security of a connection.
func (t Trust) transport() credentials.TransportCredentials {
	if t.CA == "" {
		return insecure.NewCredentials()
	}
	return networkTLS{credentials.NewTLS(mtls.ClientConfig(mtls.NewFiles(mtls.Paths{Authorities: t.CA}), t.Cluster))}
}

// networkTLS is TLS over the network. The local socket needs none: the kernel and the permissions of its folder identify
// both ends.
type networkTLS struct {
	credentials.TransportCredentials
}

// ClientHandshake implements credentials.TransportCredentials.
func (c networkTLS) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if _, local := conn.(*net.UnixConn); local {
		return insecure.NewCredentials().ClientHandshake(ctx, authority, conn)
	}
	return c.TransportCredentials.ClientHandshake(ctx, authority, conn)
}

// Clone implements credentials.TransportCredentials. That of the embedded value would use TLS on the socket.
func (c networkTLS) Clone() credentials.TransportCredentials {
	return networkTLS{c.TransportCredentials.Clone()}
}

// RetryAfter returns the wait before a call refused for overload may be repeated, if the broker gave one.
func RetryAfter(err error) (wait time.Duration, said bool) { return retryinfo.After(err) }

// maxRetries limits the number of retries of a call.
const maxRetries = 5

// retry repeats a call after the wait that the broker gave, within the deadline. It precedes authentication: each try
// needs its own proof.
func retry(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
	for try := 1; ; try++ {
		err := invoke(ctx, method, request, reply, conn, o...)
		wait, said := RetryAfter(err)
		if !said || try > maxRetries {
			return err
		}
		if end, has := ctx.Deadline(); has && time.Until(end) <= wait {
			return err // which is more specific than a timeout
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}
