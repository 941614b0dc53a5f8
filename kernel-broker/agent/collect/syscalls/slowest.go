// SPDX-License-Identifier: Apache-2.0

package syscalls

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/kernelbroker/kernelbroker/kernel-broker/profiling"
)

// What of a call's arguments names a file, as in bpf/source/syscalls.h.
const (
	fileNumber = 1 << iota
	filePath
	filePathAt
	fileOpens
)

// Calls by what names their file.
var (
	byNumber = strings.Fields(`read write pread64 pwrite64 readv writev preadv pwritev preadv2 pwritev2 lseek fstat ioctl fcntl flock
		fsync fdatasync sync_file_range syncfs ftruncate fallocate fadvise64 readahead getdents getdents64 fchdir fchmod fchown fstatfs
		fsetxattr fgetxattr flistxattr fremovexattr sendfile splice tee vmsplice copy_file_range dup dup2 dup3
		connect accept accept4 bind listen shutdown sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg getsockname getpeername
		setsockopt getsockopt epoll_wait epoll_pwait epoll_pwait2 epoll_ctl io_uring_enter`)
	byPath = strings.Fields(`open creat stat lstat access truncate chdir chroot rename mkdir rmdir link unlink symlink readlink chmod chown
		lchown mknod utime utimes statfs setxattr lsetxattr getxattr lgetxattr listxattr llistxattr removexattr lremovexattr
		mount umount2 execve`)
	byPathAt = strings.Fields(`openat openat2 newfstatat statx mkdirat mknodat fchownat futimesat utimensat unlinkat renameat renameat2
		linkat readlinkat fchmodat faccessat faccessat2 name_to_handle_at inotify_add_watch execveat`)
	opening = strings.Fields(`open creat openat openat2`)
	// Their descriptor is gone at the end, or another file's.
	closing = strings.Fields(`close`)
	// Their result is a number of bytes.
	moving = strings.Fields(`read write pread64 pwrite64 readv writev preadv pwritev preadv2 pwritev2 getdents getdents64 sendfile splice
		tee vmsplice copy_file_range sendto recvfrom sendmsg recvmsg getrandom process_vm_readv process_vm_writev`)
)

// fileIn has what names the file of each call.
var fileIn = sync.OnceValue(func() (table [numbers]uint8) {
	for number, name := range names() {
		for what, calls := range map[uint8][]string{fileNumber: byNumber, filePath: byPath, filePathAt: byPathAt, fileOpens: opening} {
			if slices.Contains(calls, name) {
				table[number] |= what
			}
		}
	}
	return table
})

// tell the programs what names a file, and whose calls they leave out: a step's daemon waits all the time, and would
// take the place of the job's slow calls.
func tell(spec *ebpf.CollectionSpec) error {
	var daemon processName
	copy(daemon[:], profiling.StepDaemon)
	for name, value := range map[string]any{"file_in": fileIn(), "left_out": daemon} {
		variable := spec.Variables[name]
		if variable == nil {
			return fmt.Errorf("no variable %q", name)
		}
		if err := variable.Set(value); err != nil {
			return fmt.Errorf("variable %q: %w", name, err)
		}
	}
	return nil
}

// slowest single calls of a kind, of which there are some.
func (s *session) slowest(number uint32) ([]profiling.SlowCall, error) {
	m, err := s.Programs.Map("slowest")
	if err != nil {
		return nil, err
	}
	var kind slowCalls
	if err := m.LookupWithFlags(number, &kind, ebpf.LookupLock); err != nil {
		return nil, fmt.Errorf("map %s: %w", m, err)
	}
	var all []profiling.SlowCall
	for i := range kind.Calls {
		if kind.Calls[i].NS == 0 {
			continue
		}
		call := kind.Calls[i].call(name(number))
		call.Node, call.At = s.node, s.began.Add(time.Duration(kind.Calls[i].Began-s.zero)).UTC()
		all = append(all, call)
	}
	return all, nil
}

// call as the domain has it, but for where and when it was.
func (c *slowCall) call(name string) profiling.SlowCall {
	call := profiling.SlowCall{
		Name: name, PID: c.PID, TID: c.TID, Program: c.Program.String(), NS: c.NS, Failed: c.Result < 0 && c.Result >= -maxErrno,
		File: c.file(name), Inode: c.File.Inode, Split: map[profiling.Cause]profiling.Part{},
	}
	if c.Type != 0 {
		call.Device = profiling.Device(c.File.Device)
	}
	if c.Result >= 0 && slices.Contains(moving, name) {
		call.Bytes = new(uint64(c.Result))
	}
	for i, cause := range profiling.Causes() {
		if part := (profiling.Part{Count: uint64(c.PartCount[i]), NS: c.PartNS[i]}); part != (profiling.Part{}) {
			call.Split[cause] = part
		}
	}
	return call
}

// file that the call was about, by its path or last name; what has none, by its kind.
func (c *slowCall) file(call string) string {
	text, _, _ := bytes.Cut(c.Path[:], []byte{0})
	path := string(bytes.ToValidUTF8(text, []byte("?")))
	kind := profiling.InodeKind(int(c.Type) - 1)
	switch about := slices.Concat(byNumber, byPath, byPathAt, closing); {
	case !slices.Contains(about, call):
		return ""
	case path == "" && c.Type == 0:
		return profiling.UnknownFile
	case path == "" || kind == "socket":
		return strings.TrimSpace("[" + kind + "] " + path)
	}
	return path
}
