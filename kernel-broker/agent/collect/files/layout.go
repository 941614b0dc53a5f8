// SPDX-License-Identifier: Apache-2.0

package files

import (
	"bytes"
	"fmt"

	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// The layouts of bpf/source/files.h, which the tests compare.
const (
	sizes     = 32
	pathBytes = 256
	mostFiles = 16384
	types     = 16
	reading   = 0
	writing   = 1
)

type fileKey struct {
	Inode      uint64
	Device     uint32
	Generation uint32
}

type traffic struct {
	Calls, Bytes, Failed, Cut, Nothing, Small, Sequential, Next, Least, Most uint64
	Sizes                                                                    [sizes]uint64
}

type fileRecord struct {
	Traffic                                                 [2]traffic
	Opens, Syncs, Seeks, IdleSeeks, Maps, Size, Magic, Last uint64
	Flags, WholePath                                        uint32
	Path                                                    [pathBytes]byte
}

type typeTraffic struct{ Calls, Bytes, Failed uint64 }

type typeRecord struct{ Traffic [2]typeTraffic }

type overflow struct {
	Traffic     [2]struct{ Calls, Bytes uint64 }
	Opens, Made uint64
}

// cpuState is per-CPU state.
type cpuState struct {
	Events, File, Inode, During uint64
	Cleared, Place              uint32
}

func (t traffic) domain() profiling.Traffic {
	return profiling.Traffic{
		Calls: t.Calls, Bytes: t.Bytes, Failed: t.Failed, Nothing: t.Nothing, Cut: t.Cut, Small: t.Small,
		Sequential: t.Sequential, Least: t.Least, Most: t.Most, Sizes: profiling.Histogram(t.Sizes[:]).Trimmed(),
	}
}

func (r *fileRecord) file(key fileKey, node string) profiling.File {
	path, _, _ := bytes.Cut(r.Path[:], []byte{0})
	return profiling.File{
		Node: node, Path: string(bytes.ToValidUTF8(path, []byte("?"))), WholePath: r.WholePath != 0,
		FileSystem: fileSystem(r.Magic), Inode: key.Inode,
		Device: profiling.Device(key.Device), Size: r.Size, Opens: r.Opens, Read: r.Traffic[reading].domain(), Write: r.Traffic[writing].domain(),
		Syncs: r.Syncs, Seeks: r.Seeks, IdleSeeks: r.IdleSeeks, Maps: r.Maps,
	}
}

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
