// SPDX-License-Identifier: Apache-2.0

//go:build lab

package suites

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/lab"
)

// Damaged images and kernels that do not boot. A kernel without the driver of its disk panics; one without its network
// driver runs but is unreachable.
func TestFaultKernels(t *testing.T) {
	f := startFaults(t, nil)
	f.profile("panics", "mitgcm", []string{"initcall_blacklist=virtio_pci_driver_init"}, "boot_timeout: 60s")
	f.profile("hangs", "mitgcm", []string{"initcall_blacklist=virtio_net_driver_init"}, "boot_timeout: 15s", "boot_attempts: 1")
	f.on("damaged-in-the-brokers-store", damagedStore)
	f.on("damaged-in-the-nodes-caches", damagedCaches)
	f.on("load-refused-on-one-node", loadRefused)
	f.on("return-fails", returnFails)
	f.on("registered-truncated", registeredTruncated)
	f.on("hangs", func(f *faults) {
		id := f.ask("alice", "hangs", 0, "-N2")
		f.isHeld("alice", id, "hangs@1")
		f.happened(id, "", "reset")
		f.inQuarantine("hangs", 2)
		f.cancelled("alice", id)
	})
	f.on("panics-until-quarantined", quarantined)
	f.on("retired", retired)
}

// artifactFile is the broker's file of a kernel's image.
func (f *faults) artifactFile(profile string) string {
	f.t.Helper()
	return filepath.Join(f.Dir(), "var/lib/kernel-broker/artifacts", f.artifactName(profile))
}

// artifactName is an image's path in the broker's store and in a node's cache.
func (f *faults) artifactName(profile string) string {
	f.t.Helper()
	return f.fileName(profile, "image_digest")
}

// fileName is the path of a kernel's file by the key of its digest.
func (f *faults) fileName(profile, key string) string {
	f.t.Helper()
	var p struct {
		Versions []struct{ Kernel map[string]any }
	}
	f.kernelctl(&p, "profile", "show", profile)
	value, _ := p.Versions[0].Kernel[key].(string) // checked below
	digest := strings.TrimPrefix(value, "sha256:")
	if len(digest) != 64 {
		f.t.Fatalf("profile %s: %s %q", profile, key, digest)
	}
	return "sha256/" + digest[:2] + "/" + digest
}

// flip changes 64 bytes in the middle of the image in the broker's store, and
// returns how to change them back.
func (f *faults) flip(profile string) (undo func()) {
	f.t.Helper()
	file := f.artifactFile(profile)
	good, err := os.ReadFile(file)
	if err != nil {
		f.t.Fatal(err)
	}
	bad := []byte(string(good))
	for i := len(bad) / 2; i < len(bad)/2+64; i++ {
		bad[i] ^= 0xff
	}
	write := func(data []byte) {
		// The broker removes damaged files that it finds.
		if err := os.Chmod(file, 0o644); err != nil && !os.IsNotExist(err) {
			f.t.Fatal(err)
		}
		if err := os.WriteFile(file, data, 0o644); err != nil {
			f.t.Fatal(err)
		}
	}
	write(bad)
	return func() { write(good) }
}

const cacheOnNode = "/var/cache/kernel-broker/"

// damagedStore: a file that does not match its digest is never loaded; the job is held with the reason and runs after
// the repair.
func damagedStore(f *faults) {
	repair := f.flip("mitgcm")
	id := f.ask("alice", "mitgcm", 0, "-N2")
	f.isHeld("alice", id, "mitgcm@1", "digest")
	f.never("alice", id)
	if j, _ := f.seen(id); hasEvent(j, "kexec") || hasEvent(j, "loaded") {
		f.t.Errorf("a damaged image was loaded: %v", j.Timeline)
	}
	f.settled()
	repair()
	f.must("root", "scontrol", "release", id)
	f.completed("alice", id, 2)
}

func hasEvent(j brokerJob, event string) bool {
	for _, e := range j.Timeline {
		if e.Event == event {
			return true
		}
	}
	return false
}

// damagedCaches: a flipped and a truncated image in the nodes' caches are
// noticed before the load and fetched again.
func damagedCaches(f *faults) {
	name := cacheOnNode + f.artifactName("mitgcm")
	f.onNodes("dd if=/dev/urandom of="+name+" bs=64 count=1 seek=20000 conv=notrunc", f.Nodes()[:1])
	f.onNodes("dd if=/dev/null of="+name+" bs=1024 seek=3000", f.Nodes()[1:])
	f.withoutCopies(f.Nodes())
	f.completed("alice", f.ask("alice", "mitgcm", 0, "-N2"), 2)
	f.settled()
	for _, n := range f.Nodes() {
		r, err := n.Exec(f.ctx, "sha256sum", name)
		if err != nil || !strings.HasPrefix(r.Stdout, filepath.Base(name)) {
			f.t.Errorf("node %s: its cache was not repaired: %s %v", n.Name(), r.Stdout, err)
		}
	}
}

// withoutCopies starts the nodes' agents anew. An idle agent has a checked copy of
// the last kernel in memory, and would not look at the damaged file.
func (f *faults) withoutCopies(nodes []lab.Node) {
	f.t.Helper()
	for _, n := range nodes {
		f.ok(n.KillAgent(f.ctx))
	}
}

// loadRefused: kexec fails on one node (F1). It is drained, the other one returns, and the job runs after the repair.
func loadRefused(f *faults) {
	bad := f.Nodes()[1:]
	f.onNodes("mount --bind /bin/false /usr/sbin/kexec", bad)
	id := f.ask("bob", "mitgcm", 0, "-N2")
	f.drained("n2", "mitgcm@1", "kexec")
	f.settled("n1")
	f.never("bob", id)
	f.onNodes("umount /usr/sbin/kexec", bad)
	f.resume("n2")
	f.completed("bob", id, 2)
}

// returnFails: the stock kernel is damaged in the broker's store (F7). That is no node's fault: the node returns by a
// reset and serves.
func returnFails(f *faults) {
	id := f.askHeld("alice", "mitgcm", "-N1", "--nodelist=n1")
	f.waitJob(id, "RUNNING")
	repair := f.flip("stock")
	f.onNodes("rm -f "+cacheOnNode+f.artifactName("stock"), f.Nodes()[:1])
	f.letGo("alice", id)
	f.completed("alice", id, 1)
	f.happened(id, "n1", "reset")
	f.settled("n1")
	f.completed("bob", f.ask("bob", "stock", 0, "-N1", "--nodelist=n1"), 1)
	repair()
}

// registeredTruncated: the digest matches what was registered, and the tools load it without an error. The nodes come
// back by themselves, and the kernel cannot be chosen any more.
func registeredTruncated(f *faults) {
	f.truncatedKernel("short")
	f.profile("short", "short", nil, "boot_timeout: 30s", "boot_attempts: 1")
	id := f.ask("alice", "short", 0, "-N2")
	f.isHeld("alice", id, "short@1")
	f.inQuarantine("short", 2)
	f.cancelled("alice", id)
}

// truncatedKernel adds a kernel to the catalog whose image lacks its end.
func (f *faults) truncatedKernel(name string) {
	f.t.Helper()
	from, to := filepath.Join(f.CatalogDir(), "kernels/mitgcm"), filepath.Join(f.CatalogDir(), "kernels", name)
	image, err := os.ReadFile(filepath.Join(from, "bzImage"))
	if err != nil {
		f.t.Fatal(err)
	}
	image = image[:len(image)*4/5]
	text, err := os.ReadFile(filepath.Join(from, "kernel.json"))
	if err != nil {
		f.t.Fatal(err)
	}
	manifest := map[string]any{}
	if err := json.Unmarshal(text, &manifest); err != nil {
		f.t.Fatal(err)
	}
	sum := sha256.Sum256(image)
	manifest["name"] = name
	manifest["image"] = map[string]any{"name": "bzImage", "digest": "sha256:" + hex.EncodeToString(sum[:]), "size": len(image)}
	if text, err = json.Marshal(manifest); err != nil {
		f.t.Fatal(err)
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		f.t.Fatal(err)
	}
	for file, data := range map[string][]byte{"bzImage": image, "kernel.json": text} {
		if err := os.WriteFile(filepath.Join(to, file), data, 0o644); err != nil {
			f.t.Fatal(err)
		}
	}
}

// inQuarantine waits until a profile's version is quarantined after that many failed boots.
func (f *faults) inQuarantine(profile string, failures int) {
	f.t.Helper()
	type standing struct {
		Versions []struct {
			BootFailures int `json:"boot_failures"`
			Quarantine   *struct{ Reason string }
		}
	}
	var p standing
	f.wait(switchLimit, profile+" to be quarantined", func() bool {
		p = standing{}
		f.kernelctl(&p, "profile", "show", profile)
		return p.Versions[0].Quarantine != nil
	})
	if v := p.Versions[0]; v.BootFailures != failures || v.Quarantine.Reason == "" {
		f.t.Errorf("profile %s: %d failed boots, want %d, reason %q", profile, v.BootFailures, failures, v.Quarantine.Reason)
	}
}

// cancelled ends a job that never ran.
func (f *faults) cancelled(user, id string) {
	f.t.Helper()
	f.must(user, "scancel", id)
	f.waitJob(id, "CANCELLED")
	f.never(user, id)
}

// quarantined: a kernel that panics twice cannot be chosen any more, and jobs
// that wait for it are held, until an administrator releases it.
func quarantined(f *faults) {
	id := f.ask("alice", "panics", 0, "-N1")
	waits := f.ask("bob", "panics", 0, "-N2")
	f.isHeld("alice", id, "panics@1")
	f.inQuarantine("panics", 2)
	f.isHeld("bob", waits, "panics@1", "quarantine")
	f.notToBeHad("panics", "quarantine")
	f.completed("bob", f.ask("bob", "stock", 0, "-N2"), 2)
	if r := f.try("alice", "kernelctl", "profile", "release", "panics@1"); r.Exit == 0 {
		f.t.Error("a user could end a quarantine")
	}
	f.must("root", "kernelctl", "profile", "release", "panics@1")
	f.wait(time.Minute, "the profile to be chosen again", func() bool {
		r := f.try("alice", "sbatch", "--parsable", "--hold", "--kernel-profile=panics", "ask.sh", "panics")
		if r.Exit == 0 {
			f.cancelled("alice", strings.TrimSpace(r.Stdout))
		}
		return r.Exit == 0
	})
	f.cancelled("alice", id)
	f.cancelled("bob", waits)
}

// notToBeHad checks that submits of a profile are refused with the reason. They use the snapshot of the catalog, which
// is a moment late.
func (f *faults) notToBeHad(profile string, words ...string) {
	f.t.Helper()
	ask := []string{"sbatch", "--parsable", "--hold", "--kernel-profile=" + profile, "ask.sh", profile}
	f.wait(time.Minute, "profile "+profile+" to be refused", func() bool {
		r := f.try("alice", ask...)
		if r.Exit == 0 {
			f.cancelled("alice", strings.TrimSpace(r.Stdout))
		}
		return r.Exit != 0
	})
	f.refused("alice", append([]string{profile}, words...), ask...)
}

// retired: a profile is retired. A job that runs on it continues, a waiting one is held with the reason, and new
// requests are refused.
func retired(f *faults) {
	f.profile("old", "mitgcm", []string{"loglevel=2"})
	runs := f.askHeld("alice", "old", "-N2")
	f.waitJob(runs, "RUNNING")
	waits := f.ask("bob", "old", 0, "-N2")
	if r := f.try("alice", "kernelctl", "profile", "retire", "old"); r.Exit == 0 {
		f.t.Error("a user could retire a profile")
	}
	f.must("root", "kernelctl", "profile", "retire", "old", "--reason", "its time is over")
	f.notToBeHad("old", "retired", "its time is over")
	f.letGo("alice", runs)
	f.completed("alice", runs, 2)
	f.isHeld("bob", waits, "old@1", "its time is over")
	f.cancelled("bob", waits)
	f.completed("bob", f.ask("bob", "stock", 0, "-N2"), 2)
}

// never checks that a job has not run at all.
func (f *faults) never(user, id string) {
	f.t.Helper()
	if p := f.probes(user, id); len(p) > 0 {
		f.t.Errorf("job %s ran: %v", id, p)
	}
}
