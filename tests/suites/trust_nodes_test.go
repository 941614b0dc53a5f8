// SPDX-License-Identifier: Apache-2.0

//go:build lab

package suites

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	transport "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/tests/lab"
)

// Node identities, attacked over the lab's own network with the files of the nodes' real disks.
func TestTrustNodes(t *testing.T) {
	c := &trust{cluster: start(t, func(o *lab.Options) {
		o.Broker = map[string]any{"tls": map[string]any{"lifetime": longLife}}
	})}
	c.prepare("alice")
	c.step("rotation while a job runs", (*trust).rotation)
	c.step("a node speaks for another", (*trust).otherNode)
	c.step("invalid certificates", (*trust).noCertificate)
	c.step("tokens", (*trust).tokens)
	c.step("a revoked node", (*trust).revoked)
	c.step("secrets stay where they are", (*trust).secrets)
	c.step("bits changed on the wire", (*trust).wire)
	c.step("certificates of the site", (*trust).site)
}

func (c *trust) step(name string, check func(*trust)) {
	outer := c.t
	if !outer.Run(name, func(t *testing.T) {
		c.t = t
		defer func() { c.t = outer }()
		check(c)
		c.settled()
	}) {
		outer.Fatal("skipped after a failure")
	}
}

// Lifetimes of certificates. The short one is for a time without boots: on a loaded machine a boot may outlast the
// certificate.
const (
	longLife  = "720h0m0s"
	shortLife = "150s"
)

// While a job runs, the broker's settings, the authority and each node's certificate are replaced, by a token and by
// renewals: the job is not affected, and the broker can bring the nodes back.
func (c *trust) rotation() {
	id := c.sbatch("alice", "-N2", "--kernel-profile=mitgcm", "job.sh", "100000")
	c.waitJob(id, "RUNNING")
	c.lifetime(longLife, shortLife)
	for _, n := range c.Nodes() {
		before := c.certificate(n.Name())
		if err := n.Enrol(c.ctx); err != nil {
			c.t.Fatal(err)
		}
		c.wait(settleLimit, "a certificate by the token on "+n.Name(), func() bool { return !c.certificate(n.Name()).Equal(before) })
	}
	c.must("root", "kernelctl", "authority", "rotate")
	newest := c.authorities()
	if len(newest) != 2 {
		c.t.Fatalf("%d authorities after a rotation", len(newest))
	}
	for _, n := range c.Nodes() {
		c.wait(settleLimit, "a renewal by the new authority on "+n.Name(), func() bool {
			return c.certificate(n.Name()).CheckSignatureFrom(newest[1]) == nil
		})
	}
	c.lifetime(shortLife, longLife)
	for _, n := range c.Nodes() {
		c.wait(settleLimit, "a renewal that lasts on "+n.Name(), func() bool {
			return time.Until(c.certificate(n.Name()).NotAfter) > time.Hour
		})
	}
	c.connected("both agents", map[string]bool{"n1": true, "n2": true})
	if job := c.job(id); job["JobState"] != "RUNNING" || job["Restarts"] != "0" {
		c.t.Errorf("job %s is %s after %s restarts", id, job["JobState"], job["Restarts"])
	}
	c.must("alice", "scancel", id)
	c.ranOn("alice", id, "mitgcm", 2)
}

// lifetime has the broker sign for another time from now on.
func (c *trust) lifetime(from, to string) {
	c.t.Helper()
	c.rewrite(c.brokerFile("broker.yaml"), "lifetime: "+from, "lifetime: "+to)
	c.restartBroker()
}

func (c *trust) restartBroker() {
	c.t.Helper()
	if err := c.Broker().Stop(c.ctx); err != nil {
		c.t.Fatal(err)
	}
	if err := c.Broker().Start(c.ctx); err != nil {
		c.t.Fatal(err)
	}
}

// agents are the agents known to the broker, and whether each is connected.
func (c *trust) agents() map[string]bool {
	c.t.Helper()
	there := map[string]bool{}
	for _, n := range c.nodes() {
		there[n.Name] = n.Connected
	}
	return there
}

// Root on one node has its key, and that opens one node.
func (c *trust) otherNode() {
	n1 := c.stolen("n1")
	c.refusedBy(c.hello(n1, "n2"), codes.PermissionDenied, `node "n1" speaks for node "n2"`)
	c.refusedBy(c.hello(n1, "n1000"), codes.PermissionDenied, `node "n1" speaks for node "n1000"`)
	if err := c.hello(c.anybody(), "n1"); status.Code(err) != codes.PermissionDenied {
		c.t.Errorf("without a certificate: %v", err)
	}
	c.nodesCalls(n1)
}

// nodesCalls makes calls with a node's certificate: only nodes' calls for that node are permitted.
func (c *trust) nodesCalls(n1 mtls.Source) {
	conn := c.over(transport.NewTLS(mtls.ClientConfig(n1, "lab")))
	trust, catalog, runs := api.NewTrustServiceClient(conn), api.NewCatalogServiceClient(conn), api.NewRunServiceClient(conn)
	for name, call := range map[string]func(context.Context) error{
		"a token for n2": func(ctx context.Context) error {
			_, err := trust.CreateNodeToken(ctx, &api.CreateNodeTokenRequest{Node: "n2"})
			return err
		},
		"a revocation of n2": func(ctx context.Context) error {
			_, err := trust.RevokeNode(ctx, &api.RevokeNodeRequest{Node: "n2"})
			return err
		},
		"the end of a profile": func(ctx context.Context) error {
			_, err := catalog.RetireProfile(ctx, &api.RetireProfileRequest{RequestId: "1", Name: "mitgcm"})
			return err
		},
		"a switch": func(ctx context.Context) error {
			stream, err := api.NewAllocationServiceClient(conn).EnsureKernel(ctx, &api.EnsureKernelRequest{JobId: 1, Profile: "mitgcm", Nodes: []string{"n2"}})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		},
		"the policy": func(ctx context.Context) error {
			_, err := api.NewPolicyServiceClient(conn).GetPolicy(ctx, &api.GetPolicyRequest{})
			return err
		},
		"the jobs": func(ctx context.Context) error {
			_, err := api.NewAllocationServiceClient(conn).ListJobs(ctx, &api.ListJobsRequest{})
			return err
		},
		"a result of n2": func(ctx context.Context) error {
			_, err := runs.DeliverRun(ctx, &api.DeliverRunRequest{Node: "n2", RunId: 1})
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(c.ctx, switchLimit)
		err := call(ctx)
		cancel()
		if code := status.Code(err); code != codes.PermissionDenied && code != codes.Unauthenticated {
			c.t.Errorf("%s with n1's certificate: %v", name, err)
		}
	}
}

func (c *trust) noCertificate() {
	for name, source := range map[string]mtls.Source{
		"another authority's, of the same names": c.foreign("n1"),
		"a node's certificate without its key":   c.withoutKey("n1"),
	} {
		if err := c.hello(source, "n1"); status.Code(err) != codes.Unavailable {
			c.t.Errorf("%s: %v", name, err)
		}
	}
	if err := c.plainHello("n1"); status.Code(err) != codes.Unavailable {
		c.t.Errorf("without TLS: %v", err)
	}
}

func (c *trust) tokens() {
	// The thief uses the token first; the node then reports that.
	stolen := c.token("n1", "1h")
	if _, err := c.enrol(stolen, "n2"); status.Code(err) != codes.PermissionDenied {
		c.t.Errorf("n1's token for n2: %v", err)
	}
	if _, err := c.enrol(stolen, "n1"); err != nil {
		c.t.Fatalf("a good token: %v", err)
	}
	_, err := c.enrol(stolen, "n1")
	c.refusedBy(err, codes.PermissionDenied, "was used for another key")
	// A broker that is killed does not forget it.
	if err := c.Broker().Kill9(c.ctx); err != nil {
		c.t.Fatal(err)
	}
	if err := c.Broker().Start(c.ctx); err != nil {
		c.t.Fatal(err)
	}
	_, err = c.enrol(stolen, "n1")
	c.refusedBy(err, codes.PermissionDenied, "was used for another key")
	short := c.token("n1", "1s")
	begun := time.Now()
	c.wait(settleLimit, "the token's end", func() bool { return time.Since(begun) > 2*time.Second })
	_, err = c.enrol(short, "n1")
	c.refusedBy(err, codes.PermissionDenied, "expired")
	// An impostor of the broker has another fingerprint.
	wrong := c.token("n1", "1h")
	wrong.Fingerprint = mtls.Fingerprint(c.foreignAuthority())
	if _, err := c.enrol(wrong, "n1"); status.Code(err) != codes.Unavailable {
		c.t.Errorf("a broker with another fingerprint: %v", err)
	}
	// Only administrators create tokens.
	c.refused("alice", []string{"administrators"}, "kernelctl", "node", "token", "n1")
	// n1 itself still has its certificate, whatever was tried with its name.
	c.must("alice", "srun", "-N2", "true")
}

// n2's disk is stolen: its contents are revoked at once; the node returns with a new token.
func (c *trust) revoked() {
	disk := c.stolen("n2")
	c.must("root", "kernelctl", "node", "revoke", "n2", "--reason", "disk stolen")
	if err := c.hello(disk, "n2"); status.Code(err) != codes.Unavailable {
		c.t.Errorf("with the stolen disk: %v", err)
	}
	c.connected("n2 to be away, n1 to be there", map[string]bool{"n1": true, "n2": false})
	var list struct {
		Nodes []struct {
			RevokedReason string `json:"revoked_reason"`
			Certificates  []struct {
				Revoked bool `json:"revoked"`
			} `json:"certificates"`
		} `json:"nodes"`
	}
	out := c.must("root", "kernelctl", "node", "certificates", "n2", "--output", "json")
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Nodes) != 1 || list.Nodes[0].RevokedReason != "disk stolen" || len(list.Nodes[0].Certificates) == 0 {
		c.t.Fatalf("%v: %s", err, out)
	}
	for _, certificate := range list.Nodes[0].Certificates {
		if !certificate.Revoked {
			c.t.Errorf("a certificate is not void: %s", out)
		}
	}
	if err := c.Node(2).Enrol(c.ctx); err != nil {
		c.t.Fatal(err)
	}
	c.connected("n2 to be back", map[string]bool{"n1": true, "n2": true})
	if err := c.hello(disk, "n2"); status.Code(err) != codes.Unavailable {
		c.t.Errorf("with the stolen disk, after the node is back: %v", err)
	}
}

// canary is in a job's environment, where the search must find it.
const canary = "a-canary-that-is-no-secret"

const envScript = `#!/bin/bash
export KB_CANARY=` + canary + `
srun bash -c 'env >"$HOME/env.$(hostname)"; until [ -e "$HOME/go" ]; do sleep 0.2; done'
`

// No secret is in an argument, an environment or a log, and secrets on disk are readable by root only.
func (c *trust) secrets() {
	token := c.token("n1", "1h")
	if err := os.WriteFile(c.Node(1).Conf("token"), []byte(token.Text()+"\n"), 0o600); err != nil {
		c.t.Fatal(err)
	}
	c.wait(settleLimit, "n1 to use its token", func() bool {
		_, err := os.Stat(c.Node(1).Conf("token"))
		return os.IsNotExist(err)
	})
	patterns := []string{token.Secret}
	patterns = append(patterns, keyLines(c.t, c.onDisk("n1", "node.pem"))...)
	patterns = append(patterns, keyLines(c.t, c.onDisk("n2", "node.pem"))...)
	patterns = append(patterns, c.must("root", "cat", "/var/lib/kernel-broker/store.key"))
	c.file("alice", "env.sh", envScript)
	id := c.sbatch("alice", "-N2", "--kernel-profile=mitgcm", "env.sh")
	c.wait(switchLimit, "the job's environment on both nodes", func() bool {
		for _, n := range c.Nodes() {
			if info, err := os.Stat(filepath.Join(c.Home("alice"), "env."+n.Name())); err != nil || info.Size() == 0 {
				return false
			}
		}
		return true
	})
	if where := c.found(patterns); where != "" {
		c.t.Errorf("a secret is in\n%s", where)
	}
	where := c.found([]string{canary})
	for _, place := range []string{"/home/alice/env.n1", "n1: /proc/", "n2: /proc/"} {
		if !strings.Contains(where, place) {
			c.t.Errorf("the search does not see %s; it sees\n%s", place, where)
		}
	}
	c.must("alice", "touch", "go")
	c.waitJob(id, "COMPLETED")
	for _, path := range []string{"tls/node.pem", "tls"} {
		info, err := os.Stat(filepath.Join(c.Node(1).State(), path))
		if err != nil || info.Mode().Perm()&0o077 != 0 {
			c.t.Errorf("%s: others may read it: %v, %v", path, info.Mode(), err)
		}
	}
	c.refused("alice", []string{"Permission denied"}, "cat", "/var/lib/kernel-broker/store.key")
	c.refused("alice", []string{"Permission denied"}, "ls", "/var/lib/kernel-broker/etcd")
}
