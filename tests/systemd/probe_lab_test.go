// SPDX-License-Identifier: Apache-2.0

//go:build lab

package systemd

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// asProbe is set in the machines, where this program is the probe: it attempts what a service must not be able to do,
// and prints each result.
const asProbe = "KERNEL_BROKER_PROBE"

// attempts are what an attacker could do with a compromised service. Success is harmless: the machine is discarded.
var attempts = []struct {
	name string
	do   func() error
}{
	{"make a device", func() error {
		path := filepath.Join(os.TempDir(), "probe-device")
		defer os.Remove(path)
		return unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3)))
	}},
	{"read the disk's device", func() error { return open("/dev/vda", unix.O_RDONLY) }},
	{"read the kernel's log", func() error { return open("/dev/kmsg", unix.O_RDONLY) }},
	{"mount", func() error { return unix.Mount("probe", "/mnt", "tmpfs", 0, "") }},
	{"a mount namespace", func() error { return unix.Unshare(unix.CLONE_NEWNS) }},
	{"a user namespace", func() error { return child(unix.CLONE_NEWUSER) }},
	{"load a module", func() error {
		module, err := os.Open(os.Getenv("PROBE_MODULE"))
		if err != nil {
			return err
		}
		defer module.Close()
		err = unix.FinitModule(int(module.Fd()), "", 0)
		if errors.Is(err, unix.EEXIST) {
			return nil // the kernel checks rights first
		}
		return err
	}},
	{"trace another process", func() error {
		_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, other(), 0, 0, 0, 0)
		return because(errno)
	}},
	{"read another process's memory", func() error {
		var there byte
		local, remote := unix.Iovec{Base: &there, Len: 1}, unix.RemoteIovec{Base: 1, Len: 1}
		_, err := unix.ProcessVMReadv(int(other()), []unix.Iovec{local}, []unix.RemoteIovec{remote}, 0)
		if errors.Is(err, unix.EFAULT) {
			return nil // no such address, but the attempt was permitted
		}
		return err
	}},
	{"see another process", func() error {
		_, err := os.Stat(fmt.Sprintf("/proc/%d/stat", other()))
		return err
	}},
	{"a program for the kernel (BPF)", func() error {
		_, _, errno := unix.Syscall(unix.SYS_BPF, uintptr(9999), 0, 0)
		return unless(errno, unix.EINVAL)
	}},
	{"load a kernel", func() error {
		_, _, errno := unix.Syscall6(unix.SYS_KEXEC_LOAD, 0, 0, 0, 0xffff, 0, 0)
		return unless(errno, unix.EINVAL)
	}},
	{"boot", func() error {
		_, _, errno := unix.Syscall(unix.SYS_REBOOT, 0, 0, 0)
		return unless(errno, unix.EINVAL)
	}},
	{"set the clock", func() error {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_REALTIME, &now); err != nil {
			return err
		}
		return unix.ClockSettime(unix.CLOCK_REALTIME, &now)
	}},
	{"set the host's name", func() error {
		name, err := os.Hostname()
		if err != nil {
			return err
		}
		return unix.Sethostname([]byte(name))
	}},
	{"change a kernel parameter", func() error { return open("/proc/sys/vm/swappiness", unix.O_WRONLY) }},
	{"become another user", func() error { return onlyThread(unix.SYS_SETRESUID, 1, 1, 1) }},
	{"give a file away", func() error { return withFile(func(path string) error { return os.Chown(path, 1, 1) }) }},
	{"make a file set-user-id", func() error { return withFile(func(path string) error { return unix.Chmod(path, 0o4700) }) }},
	{"make code at run time", func() error {
		code, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			return err
		}
		return unix.Munmap(code)
	}},
	{"real-time priority", func() error {
		priority := int32(1)
		_, _, errno := unix.Syscall(unix.SYS_SCHED_SETSCHEDULER, 0, unix.SCHED_RR, uintptr(unsafe.Pointer(&priority)))
		return because(errno)
	}},
	{"another machine type", func() error {
		const addrNoRandomize = 0x0040000
		_, _, errno := unix.Syscall(unix.SYS_PERSONALITY, addrNoRandomize, 0, 0)
		return because(errno)
	}},
	{"a packet socket", func() error { return socket(unix.AF_PACKET, unix.SOCK_RAW, 0) }},
	{"a raw socket", func() error { return socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP) }},
	{"a netlink socket", func() error { return socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE) }},
	{"change the network", func() error {
		s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		defer unix.Close(s)
		return unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_MARK, 1)
	}},
	{"a port below 1024", func() error {
		l, err := net.Listen("tcp", "127.0.0.1:99")
		if err != nil {
			return err
		}
		return l.Close()
	}},
	{"read MUNGE's key", func() error { return open("/etc/munge/munge.key", unix.O_RDONLY) }},
	{"change MUNGE's key", func() error { return open("/etc/munge/munge.key", unix.O_WRONLY) }},
	{"read users' homes", func() error {
		_, err := os.ReadDir("/home/alice")
		return err
	}},
	{"have systemd run a program", func() error {
		said, err := exec.Command("systemd-run", "--quiet", "--wait", "true").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, strings.Join(strings.Fields(string(said)), " "))
		}
		return nil
	}},
	{"addresses of memory in /proc/iomem", func() error {
		text, err := os.ReadFile("/proc/iomem")
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "System RAM") && !strings.HasPrefix(line, "00000000-00000000") {
				return nil
			}
		}
		return errors.New("all zero")
	}},
}

// TestMain starts the probe in the machines.
func TestMain(m *testing.M) {
	switch what := os.Getenv(asProbe); what {
	case "":
		os.Exit(m.Run())
	case "attempts":
		for _, a := range attempts {
			word := "yes"
			if err := a.do(); err != nil {
				word = "no: " + err.Error()
			}
			fmt.Printf("%s: %s\n", a.name, word)
		}
	case "writable":
		writable()
	case "search":
		if err := search(os.Getenv("PROBE_PATTERNS")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case "fit", "load", "boot":
		if err := asAgent(context.Background(), what); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	default:
		fmt.Fprintf(os.Stderr, "no probe %q\n", what)
		os.Exit(2)
	}
}

// writable prints the folders in which this process can create a file, except the kernel's own file systems.
func writable() {
	_ = filepath.WalkDir("/", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || !d.IsDir():
			return nil // an invisible folder is not writable
		case path == "/proc" || path == "/sys":
			return fs.SkipDir
		}
		file, err := os.CreateTemp(path, "probe")
		if err != nil {
			return nil
		}
		fmt.Println(path)
		_ = file.Close()
		_ = os.Remove(file.Name())
		return nil
	})
}

func open(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func socket(domain, kind, protocol int) error {
	fd, err := unix.Socket(domain, kind, protocol)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func because(errno syscall.Errno) error {
	if errno != 0 {
		return errno
	}
	return nil
}

// unless treats an error as success if only a privileged caller gets it: the kernel checks rights before the invalid
// arguments.
func unless(errno, good syscall.Errno) error {
	if errno == good {
		return nil
	}
	return because(errno)
}

// child starts a process in new namespaces.
func child(flags uintptr) error {
	p, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{Sys: &syscall.SysProcAttr{Cloneflags: flags}})
	if err != nil {
		return err
	}
	_, err = p.Wait()
	return err
}

// onlyThread makes a system call that changes the calling thread alone, in one
// that ends with it.
func onlyThread(call, a, b, c uintptr) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		_, _, errno := unix.RawSyscall(call, a, b, c)
		done <- because(errno)
	}()
	return <-done
}

func withFile(do func(path string) error) error {
	file, err := os.CreateTemp("", "probe")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	return do(file.Name())
}

// other is a process of another user: munged.
func other() uintptr {
	pid, err := strconv.Atoi(os.Getenv("PROBE_OTHER"))
	if err != nil {
		return 1
	}
	return uintptr(pid)
}

// search prints where each pattern occurs: in arguments and environments of processes, in the journal of all boots, and
// in log files. A pattern is a line of the file, in hexadecimal digits.
func search(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var patterns [][]byte
	for line := range strings.Lines(string(text)) {
		pattern, err := hex.DecodeString(strings.TrimSpace(line))
		if err != nil || len(pattern) < 8 {
			return fmt.Errorf("pattern %q: %w", line, err)
		}
		patterns = append(patterns, pattern)
	}
	places := map[string][]byte{}
	names, _ := filepath.Glob("/proc/[0-9]*/*")
	for _, name := range names {
		if base := filepath.Base(name); base == "cmdline" || base == "environ" {
			places[name], _ = os.ReadFile(name) // it may have ended
		}
	}
	if places["the journal"], err = exec.Command("journalctl", "--no-pager", "--output=export", "--all").Output(); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	err = filepath.WalkDir("/var/log", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && !strings.HasPrefix(path, "/var/log/journal/") {
			places[path], err = os.ReadFile(path)
		}
		return err
	})
	fmt.Printf("%d places\n", len(places))
	for place, text := range places {
		for i, pattern := range patterns {
			if bytes.Contains(text, pattern) {
				fmt.Printf("pattern %d is in %s\n", i, place)
			}
		}
	}
	return err
}
