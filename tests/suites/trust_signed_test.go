// SPDX-License-Identifier: Apache-2.0

//go:build lab

package suites

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/lab"
)

// The nodes have their own trust list. Whatever the broker, its store or its catalog contain, nodes boot only what one
// of those keys signed for this cluster, and each refusal reaches the job's user with its reason.
func TestTrustSigned(t *testing.T) {
	f := startFaults(t, func(o *lab.Options) {
		o.Agent["trust"] = map[string]any{"list": "/etc/kernel-broker/trust.yaml", "stock_files": []string{}}
		// Time is not tested here: boots may be slow.
		o.Broker = map[string]any{"switch": map[string]any{"limit": "30m", "agent_limit": "10m", "stock_timeout": "20m"}}
	})
	s := &trusting{faults: f}
	s.entry = s.key("release")
	s.list("")
	f.profile(ocean, "mitgcm", nil, "boot_timeout: 20m")
	for _, c := range []struct {
		name  string
		check func(*trusting)
	}{
		{"unsigned", unsigned},
		{"signed", signed},
		{"expired", expired},
		{"of-another-cluster", otherCluster},
		{"by-another-key", otherKey},
		{"by-a-key-for-other-profiles", otherProfilesKey},
		{"unsigned-beside-a-signed-one", otherVersion},
		{"replaced-in-the-brokers-store", replacedInStore},
		{"replaced-in-the-nodes-cache", replacedInCache},
		{"revoked", revoked},
		{"downgraded", downgraded},
	} {
		f.on(c.name, func(sub *faults) { c.check(&trusting{faults: sub, entry: s.entry}) })
	}
}

// ocean is the profile that is played with, on one node.
const ocean = "ocean"

// trusting is a cluster whose nodes have a trust list.
type trusting struct {
	*faults
	entry string // of the key that they trust
}

func keyFile(name string) string { return "/var/lib/kernel-broker/" + name + ".pem" }

// key makes a key on the front-end and returns its entry for trust lists.
func (s *trusting) key(name string) string {
	s.t.Helper()
	return "  " + s.must("root", "kernelctl", "key", "generate", keyFile(name), "--passphrase-file", "-") + "\n"
}

// list gives every node a trust list with the key and more.
func (s *trusting) list(more string) {
	s.t.Helper()
	for _, n := range s.Nodes() {
		text := "cluster: lab\nkeys:\n" + s.entry + more
		next := n.Conf("trust.next")
		if err := os.WriteFile(next, []byte(text), 0o644); err != nil {
			s.t.Fatal(err)
		}
		if err := os.Rename(next, n.Conf("trust.yaml")); err != nil {
			s.t.Fatal(err)
		}
	}
}

// sign signs a registered kernel, for which the files vouch that it is of.
func (s *trusting) sign(kernel string, more ...string) {
	s.t.Helper()
	s.signBy("release", "lab", kernel, more...)
}

func (s *trusting) signBy(key, cluster, kernel string, more ...string) {
	s.t.Helper()
	s.must("root", append(append(signCommand(key, cluster, kernel), s.files(kernel)...), more...)...)
}

func signCommand(key, cluster, kernel string) []string {
	return []string{"kernelctl", "kernel", "sign", kernel, "--sign-key", keyFile(key), "--cluster", cluster}
}

// files are those from which version 1 of ocean and of stock were registered.
func (s *trusting) files(kernel string) []string {
	const kernels = "/run/lab/catalog/kernels/"
	if !strings.HasPrefix(kernel, "stock@") {
		return []string{"--kernel", kernels + "mitgcm/bzImage", "--manifest", kernels + "mitgcm/kernel.json"}
	}
	at := kernels + s.Kernel().Name
	files := []string{"--kernel", at + "/bzImage", "--manifest", at + "/kernel.json"}
	if s.Kernel().Initrd != "" {
		files = append(files, "--initrd", at+"/initrd.img")
	}
	return files
}

// refusedKernel requests a kernel that no node may even fetch; its user must get the reason.
func (s *trusting) refusedKernel(kernel string, words ...string) {
	s.t.Helper()
	id := s.askVersion(kernel)
	s.isHeld("alice", id, append([]string{kernel}, words...)...)
	s.never("alice", id)
	if j, _ := s.seen(id); hasEvent(j, "kexec") || hasEvent(j, "loaded") {
		s.t.Errorf("%s was loaded: %v", kernel, j.Timeline)
	}
	s.cancelled("alice", id)
}

// runs has a job of the default version run.
func (s *trusting) runs() {
	s.t.Helper()
	s.ran(s.ask("alice", ocean, 0, onOne...))
}

// ran is completed for a machine with slow boots.
func (s *trusting) ran(id string) {
	s.t.Helper()
	s.wait(20*time.Minute, "job "+id+" to complete or to be held", func() bool {
		job := s.job(id)
		s.hurry(job)
		return job["JobState"] == "COMPLETED" || held(job)
	})
	s.completed("alice", id, 1)
}

var onOne = []string{"-N1", "--nodelist=n1"}

// askVersion is ask for NAME@VERSION.
func (s *trusting) askVersion(kernel string) string {
	s.t.Helper()
	profile, _, _ := strings.Cut(kernel, "@")
	argv := append([]string{"sbatch", "--parsable", "--output=%j.out", "--kernel-profile=" + kernel}, onOne...)
	id, _, _ := strings.Cut(s.must("alice", append(argv, "ask.sh", profile, "0")...), ";")
	s.jobs[id] = profile
	return id
}

func unsigned(s *trusting) {
	s.refusedKernel(ocean+"@1", "not signed")
}

// signed: with a signature the same kernel boots, and the node returns to stock, which is signed too.
func signed(s *trusting) {
	// The broker's description does not suffice for a signature.
	s.refused("root", []string{"no evidence other than the broker's", "--verify-key"}, signCommand("release", "lab", ocean+"@1")...)
	s.sign("stock@1", "--reason", "for the suite")
	s.sign(ocean + "@1")
	s.runs()
	s.settled()
	for _, n := range s.Nodes()[:1] {
		if text, err := os.ReadFile(n.Log("kernel-broker/agent.log")); err != nil || !strings.Contains(string(text), "signature verified") {
			s.t.Errorf("node %s: its agent's log does not say that a signature was verified (%v)", n.Name(), err)
		}
	}
	if out := s.must("alice", "kernelctl", "profile", "show", "stock"); !strings.Contains(out, "signed") || !strings.Contains(out, "for the suite") {
		s.t.Errorf("the record of stock:\n%s", out)
	}
}

func expired(s *trusting) {
	s.sign(ocean+"@1", "--valid", "1s")
	time.Sleep(2 * time.Second) // until it has, which nothing else shows
	s.refusedKernel(ocean+"@1", "expired")
	// An expired signature still shows what was signed.
	s.must("root", signCommand("release", "lab", ocean+"@1")...)
}

// otherCluster: a true signature, copied from where it is good.
func otherCluster(s *trusting) {
	s.signBy("release", "beta", ocean+"@1")
	s.refusedKernel(ocean+"@1", "another cluster", "beta")
	s.sign(ocean + "@1")
}

func otherKey(s *trusting) {
	s.key("stolen")
	s.signBy("stolen", "lab", ocean+"@1")
	s.refusedKernel(ocean+"@1", "no key that is trusted")
	s.sign(ocean + "@1")
}

// otherProfilesKey: a builder's key, which the nodes trust for the builder's
// profiles.
func otherProfilesKey(s *trusting) {
	s.list(s.key("builder") + "    profiles: [lake, \"pond*\"]\n")
	s.signBy("builder", "lab", ocean+"@1")
	s.refusedKernel(ocean+"@1", "may not sign this profile")
	s.list("")
	s.sign(ocean + "@1")
}

// otherVersion: the signature of one version does not cover the next.
func otherVersion(s *trusting) {
	s.register("--argument", "quiet")
	s.refusedKernel(ocean+"@2", "not signed")
	s.ran(s.askVersion(ocean + "@1"))
}

// register adds a version of mitgcm's kernel.
func (s *trusting) register(more ...string) {
	s.t.Helper()
	at := "/run/lab/catalog/kernels/mitgcm/"
	s.must("root", append([]string{"kernelctl", "kernel", "register", "--no-boot-test", "--profile", ocean,
		"--kernel", at + "bzImage", "--manifest", at + "kernel.json"}, more...)...)
}

// replacedInStore: with other bytes under its name the kernel is never loaded;
// its user reads why, and it runs when the store was repaired.
func replacedInStore(s *trusting) {
	repair := s.flip(ocean)
	s.onNodes("rm -f "+cacheOnNode+s.artifactName(ocean), s.Nodes()[:1])
	s.refusedKernel(ocean+"@1", "digest")
	repair()
	s.runs()
}

// replacedInCache: other bytes in the node's cache are noticed as they are copied
// for the load, and fetched again.
func replacedInCache(s *trusting) {
	name := cacheOnNode + s.artifactName(ocean)
	s.onNodes("dd if=/dev/urandom of="+name+" bs=64 count=1 seek=20000 conv=notrunc", s.Nodes()[:1])
	s.withoutCopies(s.Nodes()[:1])
	s.runs()
	s.settled() // a node that returns does not answer
	r, err := s.Node(1).Exec(s.ctx, "sha256sum", name)
	if err != nil || !strings.HasPrefix(r.Stdout, filepath.Base(name)) {
		s.t.Errorf("the cache was not repaired: %s %v", r.Stdout, err)
	}
}

// revoked: keys revoked on the nodes count at once, independent of the broker.
func revoked(s *trusting) {
	name := s.artifactName(ocean)
	s.list(fmt.Sprintf("revoked:\n  digests: [\"sha256:%s\"]\n", filepath.Base(name)))
	s.refusedKernel(ocean+"@1", "revoked")
	s.list("")
}

// downgraded: once a kernel with a floor has run on a node, no older version of that profile boots there: by no later
// agent, on no later boot, and for no default of the broker.
func downgraded(s *trusting) {
	s.register("--argument", "nosmt", "--sign-key", keyFile("release"), "--cluster", "lab", "--version", "3", "--floor", "3", "--default")
	s.runs()
	s.settled()
	s.refusedKernel(ocean+"@1", "older than the profile's floor", "the floor is 3")
	s.settled()
	for _, n := range s.Nodes()[:1] {
		text, err := os.ReadFile(filepath.Join(n.State(), "trust.state"))
		if err != nil || !strings.Contains(string(text), `"ocean":3`) {
			s.t.Errorf("node %s remembers %s, %v", n.Name(), text, err)
		}
	}
	s.must("root", "kernelctl", "profile", "promote", ocean+"@1", "--reason", "by mistake")
	s.refusedKernel(ocean+"@1", "older than the profile's floor")
	s.must("root", "kernelctl", "profile", "rollback", ocean, "--reason", "it was one")
	s.runs()
}
