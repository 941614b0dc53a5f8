// SPDX-License-Identifier: Apache-2.0

//go:build lab

package kexec_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/agent/kexec"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/vm"
)

// Debian's ovmf ships a variable store with a single test key and its private half.
const (
	firmware  = "/usr/share/OVMF/OVMF_CODE_4M.secboot.fd"
	variables = "/usr/share/OVMF/OVMF_VARS_4M.snakeoil.fd"
	snakeoil  = "/usr/share/ovmf/PkKek-1-snakeoil"
	kernels   = "../../../build/kernels/"
)

// On a machine with Secure Boot and a kernel signed with the firmware's key, the agent's own code loads another kernel
// only if the same key signed it, and that kernel then runs. Both are Debian's kernel without Debian's signature; ours
// lack the PE header of CONFIG_EFI_STUB.
func TestSecureBoot(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	// The key of the package is locked with its name.
	run(t, "openssl", "rsa", "-in", snakeoil+".key", "-passin", "pass:snakeoil", "-out", at("key"))
	run(t, "cp", kernels+"stock/bzImage", at("unsigned"))
	run(t, "sbattach", "--remove", at("unsigned"))
	run(t, "sbsign", "--key", at("key"), "--cert", snakeoil+".pem", "--output", at("signed"), at("unsigned"))
	second := vm.Root{Script: `echo "second: $(uname -r), token $(sed -n 's/.*token=//p' /proc/cmdline)"` + "\n"}
	if err := vm.BuildInitrd(t.Context(), second, at("second")); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	first := vm.Root{
		Script: "mount -t securityfs none /sys/kernel/security\nexport GUEST=1\nexec /kexec.test -test.run '^TestInTheGuest$' -test.v\n",
		Files: []vm.File{
			{Path: "/kexec.test", Source: self, Mode: 0o755}, {Path: "/usr/sbin/kexec", Source: "/usr/sbin/kexec"},
			{Path: "/signed", Source: at("signed")}, {Path: "/unsigned", Source: at("unsigned")}, {Path: "/second", Source: at("second")},
		},
	}
	if err := vm.BuildInitrd(t.Context(), first, at("initrd")); err != nil {
		t.Fatal(err)
	}
	run(t, "cp", variables, at("vars"))
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	qemu := exec.CommandContext(ctx, "qemu-system-x86_64", "-M", "q35,smm=on", "-cpu", "Haswell", "-m", "1024", "-nodefaults", "-no-user-config",
		"-no-reboot", "-display", "none", "-global", "driver=cfi.pflash01,property=secure,value=on",
		"-drive", "if=pflash,unit=0,format=raw,readonly=on,file="+firmware, "-drive", "if=pflash,unit=1,format=raw,file="+at("vars"),
		"-kernel", at("signed"), "-initrd", at("initrd"), "-append", "console=ttyS0,115200 rdinit=/init panic=-1 oops=panic random.trust_cpu=on",
		"-serial", "file:"+at("console"), "-serial", "null")
	if out, err := qemu.CombinedOutput(); err != nil {
		t.Errorf("qemu: %v: %s", err, out)
	}
	console, err := os.ReadFile(at("console"))
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{"guest: locked true", "guest: unsigned refused", "guest: signed loaded", "second: 6.1", "token 0a0a"} {
		if !strings.Contains(string(console), words) {
			t.Errorf("the console lacks %q", words)
		}
	}
	for line := range strings.Lines(string(console)) {
		if strings.Contains(line, "guest: ") || strings.Contains(line, "second: ") || strings.Contains(line, "ockdown") || strings.Contains(line, "ecure boot") {
			t.Log(strings.TrimSpace(line))
		}
	}
	if t.Failed() {
		t.Logf("console:\n%s", console[max(0, len(console)-6000):])
	}
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
}

// TestInTheGuest runs inside the machine of TestSecureBoot.
func TestInTheGuest(t *testing.T) {
	if os.Getenv("GUEST") == "" {
		t.Skip("runs in the machine of TestSecureBoot only")
	}
	k := kexec.Kexec{Program: "/usr/sbin/kexec", LoadArgs: []string{"-c", "-i"}, ExecuteArgs: []string{"-x", "-y"}, Sys: "/sys"}
	locked, err := k.Locked()
	fmt.Printf("guest: locked %v %v\n", locked, err)
	load := func(name string) error {
		var files []*os.File
		for _, path := range []string{name, "/second"} {
			source, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			file, _, _, err := kexec.SealedCopy(t.Context(), path, source, 1<<30)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
		return k.Load(t.Context(), files[0], files[1], "console=ttyS0,115200 rdinit=/init panic=-1 token=0a0a")
	}
	err = load("/unsigned")
	if !errors.Is(err, kexec.ErrSignature) {
		t.Fatalf("guest: unsigned: %v", err)
	}
	fmt.Printf("guest: unsigned refused: %v\n", err)
	// Without the switch to the other system call nothing can be loaded.
	out, err := exec.CommandContext(t.Context(), "/usr/sbin/kexec", "-c", "-l", "/signed").CombinedOutput()
	fmt.Printf("guest: kexec -c: %v %s\n", err, out)
	if err == nil {
		t.Fatal("guest: kexec_load is allowed")
	}
	for range 2 { // unloading works, too
		if err := load("/signed"); err != nil {
			t.Fatalf("guest: signed: %v", err)
		}
		if err := k.Unload(t.Context()); err != nil {
			t.Fatalf("guest: unload: %v", err)
		}
	}
	if err := load("/signed"); err != nil {
		t.Fatal(err)
	}
	fmt.Println("guest: signed loaded")
	t.Fatal("guest: ", k.Execute(t.Context()))
}
