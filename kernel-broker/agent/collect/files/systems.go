// SPDX-License-Identifier: Apache-2.0

package files

import "fmt"

// systems maps magic numbers of file systems to names.
var systems = map[uint64]string{
	0x00c36400: "ceph",
	0x01021994: "tmpfs",
	0x01021997: "9p",
	0x0bd00bd0: "lustre",
	0x19830326: "beegfs",
	0x2fc12fc1: "zfs",
	0x47504653: "gpfs",
	0x53464846: "wekafs",
	0x58465342: "xfs",
	0x62656572: "sysfs",
	0x63677270: "cgroup2",
	0x64626720: "debugfs",
	0x65735546: "fuse",
	0x6969:     "nfs",
	0x73717368: "squashfs",
	0x794c7630: "overlay",
	0x858458f6: "ramfs",
	0x9123683e: "btrfs",
	0x958458f6: "hugetlbfs",
	0x9fa0:     "proc",
	0xef53:     "ext4",
	0xf2f52010: "f2fs",
}

func fileSystem(magic uint64) string {
	if known := systems[magic]; known != "" {
		return known
	}
	return fmt.Sprintf("%#x", magic)
}
