// SPDX-License-Identifier: Apache-2.0

//go:build lab

package suites

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/tests/lab"
)

// modular is the kernel with modules of others.
const modular = "suite-modules"

// moduleTools are programs that use modules. They are taken out of their packages, which would start services.
func moduleTools(t *testing.T) map[string]string {
	t.Helper()
	dir, cell := t.TempDir(), t.TempDir()
	for _, name := range []string{"openafs-client", "jool-tools"} {
		if _, err := build.Unpack(t.Context(), name, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	files := map[string]string{
		"/usr/sbin/afsd": filepath.Join(dir, "openafs-client/sbin/afsd"), "/usr/bin/jool": filepath.Join(dir, "jool-tools/usr/bin/jool"),
	}
	for name, text := range map[string]string{"ThisCell": "example.org\n", "cacheinfo": "/run/afs:/tmp/afs:8192\n", "CellServDB": ">example.org #a cell\n10.99.0.1 #server\n"} {
		if err := os.WriteFile(filepath.Join(cell, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		files["/etc/openafs/"+name] = filepath.Join(cell, name)
	}
	return files
}

// What an administrator's prolog would do on a node: a file system, a translator of addresses, a device for user space.
const useModules = `set -e
mkdir -p /run/afs
afsd -dynroot -memcache -mountdir /run/afs >&2
jool instance add lab --netfilter --pool6 64:ff9b::/96
echo "8086 2930" >/sys/bus/pci/drivers/igb_uio/new_id
chmod 666 /dev/uio0
`

// An ordinary user's job sees what they do.
const modularJob = `#!/bin/bash
for id in $(cut -d' ' -f1 /proc/modules); do echo "module $id"; done
until [ -e "$HOME/used" ]; do sleep 0.1; done
echo "afs $(awk '$2 == "/run/afs" { print $3 }' /proc/mounts) $(cd /run/afs && echo *)"
echo "uio $(cat /sys/class/uio/uio0/name) $(head -c 0 /dev/uio0 && echo opened)"
"$HOME/probe.sh" batch modular
srun "$HOME/probe.sh" task modular
`

// A job runs on a kernel with modules of others, which its nodes load before the job begins and which are of use; the
// nodes go back to a kernel without them. A kernel whose modules do not load never gets a job.
func TestModulesOfOthers(t *testing.T) {
	f := startFaults(t, func(o *lab.Options) {
		o.Nodes = 2
		o.Files = moduleTools(t)
	})
	f.kernelFolder(modular)
	f.profile("modular", modular, nil)
	f.on("loaded-and-used", loadedAndUsed)
	f.on("an-archive-that-is-damaged-on-the-node", damagedArchive)
	f.on("a-module-that-its-build-did-not-sign", unsignedModule)
}

// loadedAndUsed: the modules are there when the job begins, and a user's program finds what they do.
func loadedAndUsed(f *faults) {
	if err := os.WriteFile(filepath.Join(f.Home("alice"), "modular.sh"), []byte(modularJob), 0o755); err != nil {
		f.t.Fatal(err)
	}
	id, _, _ := strings.Cut(f.must("alice", "sbatch", "--parsable", "-N1", "--nodelist=n1", "--output=modular.out",
		"--kernel-profile=modular", "modular.sh"), ";")
	f.jobs[id] = "modular"
	f.waitJob(id, "RUNNING")
	f.onNodes(useModules, f.Nodes()[:1])
	if err := os.WriteFile(filepath.Join(f.Home("alice"), "used"), nil, 0o644); err != nil {
		f.t.Fatal(err)
	}
	f.completed("alice", id, 1)
	text, err := os.ReadFile(filepath.Join(f.Home("alice"), "modular.out"))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Logf("the job's output:\n%s", text)
	for _, line := range []string{
		"module dm_writeboost", "module igb_uio", "module jool", "module jool_common", "module openafs", "module xt_condition", "module xt_length2",
		"afs afs example.org", "uio igb_uio opened",
	} {
		if !strings.Contains("\n"+string(text), "\n"+line+"\n") {
			f.t.Errorf("the job did not see %q", line)
		}
	}
	f.settled()
}

// damagedArchive: the node notices it, and gets the archive again.
func damagedArchive(f *faults) {
	name := cacheOnNode + f.fileName("modular", "modules_digest")
	f.onNodes("dd if=/dev/urandom of="+name+" bs=64 count=1 seek=1000 conv=notrunc", f.Nodes()[:1])
	f.withoutCopies(f.Nodes()[:1])
	f.completed("alice", f.ask("alice", "modular", 0, "-N1", "--nodelist=n1"), 1)
	f.settled()
	if r, err := f.Node(1).Exec(f.ctx, "sha256sum", name); err != nil || !strings.HasPrefix(r.Stdout, filepath.Base(name)) {
		f.t.Errorf("the cache was not repaired: %s %v", r.Stdout, err)
	}
}

// unsignedModule: the kernel refuses it, the job does not begin, and its user reads why.
func unsignedModule(f *faults) {
	const name = "suite-modules-unsigned"
	from, to := filepath.Join(f.Options().Kernels, modular), filepath.Join(f.CatalogDir(), "kernels", name)
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		f.t.Fatal(err)
	}
	archive := withoutSignature(f.t, filepath.Join(to, "modules.tar.zst"), "/jool.ko")
	var manifest map[string]any
	text, err := os.ReadFile(filepath.Join(to, "kernel.json"))
	if err == nil {
		err = json.Unmarshal(text, &manifest)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	sum := sha256.Sum256(archive)
	manifest["name"] = name
	manifest["module_archive"] = map[string]any{"name": "modules.tar.zst", "digest": "sha256:" + hex.EncodeToString(sum[:]), "size": len(archive)}
	if text, err = json.Marshal(manifest); err != nil {
		f.t.Fatal(err)
	}
	for file, content := range map[string][]byte{"kernel.json": text, "modules.tar.zst": archive} {
		if err := os.WriteFile(filepath.Join(to, file), content, 0o644); err != nil {
			f.t.Fatal(err)
		}
	}
	f.profile("unsigned", name, nil, "boot_attempts: 1")
	id := f.ask("alice", "unsigned", 0, "-N1", "--nodelist=n1")
	f.isHeld("alice", id, "unsigned@1", "module jool", "not signed by the build of this kernel")
	f.cancelled("alice", id)
}

// withoutSignature reads an archive and takes the mark of a signature off the end of one module.
func withoutSignature(t *testing.T, path, module string) []byte {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }() // only read from
	plain, err := zstd.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	var out bytes.Buffer
	packed, err := zstd.NewWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	from, to, found := tar.NewReader(plain), tar.NewWriter(packed), false
	for {
		header, err := from.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(from)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(header.Name, module) {
			content, found = bytes.CutSuffix(content, []byte("~Module signature appended~\n"))
			header.Size = int64(len(content))
		}
		if err := to.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := to.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(to.Close(), packed.Close()); err != nil || !found {
		t.Fatalf("%s: signature of %s found: %v, %v", path, module, found, err)
	}
	return out.Bytes()
}
