// SPDX-License-Identifier: Apache-2.0

//go:build lab

package suites

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/kernelbroker/kernelbroker/kernel-broker/api/client"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/credential"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/munge"
)

// Run by a user on the cluster's front-end, this program plays an attacker's client: it makes one call with any
// credential, or relays between a node and the broker.

// callVariable has it do that instead of its tests.
const callVariable = "KB_SUITE_CALL"

// toolPath is this program on the front-end.
const toolPath = "/run/lab/suite-tool"

// caller is its instruction: a call with a credential, or as any user of its host if it runs as root.
type caller struct {
	Address, Call, Credential string
	CA                        string // of the broker's
	As                        *int
}

// answered is the broker's answer.
type answered struct{ Code, Message string }

func TestMain(m *testing.M) {
	if text := os.Getenv(proxyVariable); text != "" {
		beProxy(text)
	}
	text := os.Getenv(callVariable)
	if text == "" {
		os.Exit(m.Run())
	}
	var c caller
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	s := status.Convert(c.make())
	if err := json.NewEncoder(os.Stdout).Encode(answered{s.Code().String(), s.Message()}); err != nil {
		os.Exit(2)
	}
}

func (c caller) make() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var more []grpc.DialOption
	if c.As != nil {
		if err := syscall.Setuid(*c.As); err != nil {
			return err
		}
		config := client.Config{Munge: munge.DefaultSocket, Trust: client.Trust{Cluster: "lab"}}
		more = config.Proof(c.Address, func(socket string) client.Encoder { return munge.New(socket) })
	}
	conn, err := client.Dial(c.Address, client.Trust{CA: cmp.Or(c.CA, "/var/lib/kernel-broker/ca.pem"), Cluster: "lab"}, more...)
	if err != nil {
		return err
	}
	defer conn.Close()
	if c.Credential != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, credential.Header, c.Credential)
	}
	words := strings.Fields(c.Call)
	switch words[0] {
	case "check":
		_, err = api.NewCatalogServiceClient(conn).CheckProfile(ctx, &api.CheckProfileRequest{Profile: words[1]})
	case "promote":
		r := &api.PromoteVersionRequest{RequestId: "1", Name: words[1], Reason: "a try"}
		if _, err := fmt.Sscan(words[2], &r.Version); err != nil {
			return err
		}
		_, err = api.NewCatalogServiceClient(conn).PromoteVersion(ctx, r)
	case "policy":
		_, err = api.NewPolicyServiceClient(conn).GetPolicy(ctx, &api.GetPolicyRequest{})
	case "token":
		_, err = api.NewTrustServiceClient(conn).CreateNodeToken(ctx, &api.CreateNodeTokenRequest{Node: words[1]})
	case "revoke":
		_, err = api.NewTrustServiceClient(conn).RevokeNode(ctx, &api.RevokeNodeRequest{Node: words[1]})
	case "release":
		r := &api.ReleaseJobRequest{}
		if _, err := fmt.Sscan(words[1], &r.JobId); err != nil {
			return err
		}
		_, err = api.NewAllocationServiceClient(conn).ReleaseJob(ctx, r)
	case "retire":
		_, err = api.NewCatalogServiceClient(conn).RetireProfile(ctx, &api.RetireProfileRequest{RequestId: "1", Name: words[1]})
	case "ensure":
		r := &api.EnsureKernelRequest{Profile: words[1], Nodes: []string{"n1"}}
		if _, err := fmt.Sscan(words[2], &r.JobId); err != nil {
			return err
		}
		stream, err := api.NewAllocationServiceClient(conn).EnsureKernel(ctx, r)
		for err == nil {
			_, err = stream.Recv()
		}
		if !errors.Is(err, io.EOF) {
			return err
		}
	default:
		err = fmt.Errorf("no call %q", c.Call)
	}
	return err
}

// tool puts this program where the cluster's users find it.
func (c *cluster) tool() {
	c.t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.Dir(), filepath.Base(toolPath)), self, 0o755); err != nil {
		c.t.Fatal(err)
	}
}

// socket is the broker's, which only its own host has.
func (c *cluster) socket() string { return "unix:///run/kernel-broker/broker.sock" }

// call has a user make a call.
func (c *cluster) call(user, address, call, credential string) answered {
	c.t.Helper()
	text, err := json.Marshal(caller{Address: address, Call: call, Credential: credential})
	if err != nil {
		c.t.Fatal(err)
	}
	out := c.must(user, "env", callVariable+"="+string(text), toolPath)
	var a answered
	if err := json.Unmarshal([]byte(out), &a); err != nil {
		c.t.Fatalf("%s: %v: %s", call, err, out)
	}
	return a
}

func (c *cluster) answers(user, address, call, credential, code, words string) {
	c.t.Helper()
	c.answersIn(call, user, address, call, credential, code, words)
}

// answersIn checks a call's code and message.
func (c *cluster) answersIn(what, user, address, call, credential, code, words string) {
	c.t.Helper()
	if a := c.call(user, address, call, credential); a.Code != code || !strings.Contains(a.Message, words) {
		c.t.Errorf("%s: %s: %s, want %s with %q", what, a.Code, a.Message, code, words)
	}
}
