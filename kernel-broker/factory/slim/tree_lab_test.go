// SPDX-License-Identifier: Apache-2.0

//go:build lab

package slim

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/kconfig"
)

// realTree is the kernel source that the factory unpacked last.
func realTree(t *testing.T) string {
	t.Helper()
	cache := os.Getenv("KB_CACHE")
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		cache = filepath.Join(user, "kernel-broker")
	}
	trees, err := filepath.Glob(filepath.Join(cache, "source", "*", "linux-source-*", "Kbuild"))
	if err != nil {
		t.Fatal(err)
	}
	if len(trees) == 0 {
		t.Fatalf("no kernel source below %s: make kernels", cache)
	}
	return filepath.Dir(trees[len(trees)-1])
}

func TestMakefilesOfTheRealTree(t *testing.T) {
	kbuild, err := ReadKbuild(os.DirFS(realTree(t)))
	if err != nil {
		t.Fatal(err)
	}
	if objects, unread := len(kbuild.Objects), len(kbuild.Unread); objects < 20000 || unread > objects/500 {
		t.Errorf("%d objects, %d words not read: %v", objects, unread, kbuild.Unread)
	}
	for object, want := range map[string]string{
		"kernel/fork.o":                  "",
		"fs/ext4/super.o":                "EXT4_FS",
		"fs/ext4/acl.o":                  "EXT4_FS && EXT4_FS_POSIX_ACL",
		"io_uring/rw.o":                  "IO_URING",
		"net/ipv4/tcp_cubic.o":           "NET && INET && TCP_CONG_CUBIC",
		"arch/x86/pci/mmconfig_64.o":     "PCI && PCI_MMCONFIG",
		"arch/x86/kernel/head_64.o":      "",
		"drivers/net/virtio_net.o":       "VIRTIO_NET",
		"fs/xfs/libxfs/xfs_alloc.o":      "XFS_FS",
		"drivers/acpi/acpica/dsargs.o":   "ACPI",
		"fs/buffer.o":                    "BLOCK",
		"fs/no-block.o":                  "!BLOCK",
		"arch/x86/lib/copy_user_64.o":    "!X86_32",
		"kernel/sched/build_policy.o":    "",
		"drivers/base/firmware_loader/x": "no such object",
	} {
		gates := kbuild.Objects[object]
		if want == "no such object" {
			if len(gates) > 0 {
				t.Errorf("%s: %v", object, gates)
			}
			continue
		}
		if !slices.ContainsFunc(gates, func(gate Gate) bool { return gate.String() == want }) {
			t.Errorf("%s: %q, want %q", object, gates, want)
		}
	}
}

func TestKconfigOfTheRealTree(t *testing.T) {
	options, err := kconfig.Read(os.DirFS(realTree(t)))
	if err != nil {
		t.Fatal(err)
	}
	if symbols := len(options.Symbols); symbols < 14000 {
		t.Errorf("%d symbols", symbols)
	}
	lists, err := ReadKeepLists(os.DirFS("../../../catalog/keep"))
	if err != nil {
		t.Fatal(err)
	}
	for _, option := range unusedOptions(lists, options) {
		t.Errorf("%s: no Kconfig file defines %s", option.Where, option.Pattern)
	}
	config := kconfig.Config{"NET": "y", "INET": "y", "TCP_CONG_ADVANCED": "y", "TCP_CONG_CUBIC": "y", "DEFAULT_CUBIC": "y", "INET_DIAG": "y", "INET_TCP_DIAG": "y"}
	got := kconfig.SwitchedOff(config, options.Without(config, []string{"INET_DIAG"}, nil))
	if !slices.Equal(got, []string{"INET_DIAG", "INET_TCP_DIAG"}) {
		t.Errorf("without INET_DIAG: %v", got)
	}
	if other := options.Traded("DEFAULT_CUBIC", options.Without(config, []string{"TCP_CONG_CUBIC"}, nil)); other != "DEFAULT_RENO" {
		t.Errorf("DEFAULT_CUBIC would be traded for %q", other)
	}
}
