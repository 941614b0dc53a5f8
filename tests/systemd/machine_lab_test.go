// SPDX-License-Identifier: Apache-2.0

//go:build lab

package systemd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// limit is generous for a loaded host with emulation; conditions are noticed at once.
const limit = 15 * time.Minute

// machine is a virtual machine with Debian's systemd. Its processor is always emulated: speed does not matter here.
type machine struct {
	t       *testing.T
	name    string
	token   string
	address string // of the channel for commands, on this host
	ssh     string // of sshd, on this host
	console string
}

// The network of the two machines is theirs alone; the first network card of
// each is the channel for commands.
var addresses = map[string]string{"ctl1": "10.77.0.1/24", "n1": "10.77.0.11/24"}

// boot is what the machines of a test start from.
type boot struct {
	dir                   string // for what belongs to one test
	image, kernel, initrd string
	token                 string // of the channel for commands
	channel               string // more options of QEMU for the network card of the channel
}

// power starts a machine. It ends with the test, and its disk is discarded.
func power(t *testing.T, b boot, name string) *machine {
	t.Helper()
	dir := b.dir
	m := &machine{t: t, name: name, token: b.token, address: freePort(t), ssh: freePort(t), console: filepath.Join(dir, name+".console")}
	var other string
	for n := range addresses {
		if n != name {
			other = n
		}
	}
	temporary := filepath.Join(dir, name+".tmp")
	if err := os.MkdirAll(temporary, 0o755); err != nil {
		t.Fatal(err)
	}
	append := "root=/dev/vda ro console=ttyS0,115200 panic=3 no_timer_check net.ifnames=0 random.trust_cpu=on " +
		"kb.node=" + name + " kb.ip=" + addresses[name]
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	qemu := exec.CommandContext(ctx, "qemu-system-x86_64",
		"-accel", "tcg,thread=multi,tb-size=256", "-M", "q35", "-cpu", "qemu64,+rdrand", "-smp", "1", "-m", "1024",
		"-nodefaults", "-no-user-config", "-display", "none", "-name", name,
		"-kernel", b.kernel, "-initrd", b.initrd, "-append", append,
		"-drive", "if=virtio,format=raw,snapshot=on,cache=unsafe,file.locking=off,file="+b.image,
		"-netdev", "user,id=channel,hostfwd=tcp:"+m.address+"-10.0.2.15:7000,hostfwd=tcp:"+m.ssh+"-10.0.2.15:22"+b.channel,
		"-device", "virtio-net-pci,netdev=channel,romfile=,mac=52:54:00:77:00:01",
		"-netdev", "dgram,id=cluster,local.type=unix,local.path="+filepath.Join(dir, name+".net")+
			",remote.type=unix,remote.path="+filepath.Join(dir, other+".net"),
		"-device", "virtio-net-pci,netdev=cluster,romfile=,mac=52:54:00:77:01:"+map[string]string{"ctl1": "01", "n1": "11"}[name],
		"-device", "virtio-rng-pci",
		"-serial", "file:"+m.console)
	qemu.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + temporary}
	var said strings.Builder
	qemu.Stdout, qemu.Stderr = &said, &said
	if err := qemu.Start(); err != nil {
		t.Fatalf("%v (make deps)", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s: the console's end:\n%s", name, tail(m.console))
		}
		cancel()
		if err := qemu.Wait(); err != nil && ctx.Err() == nil {
			t.Errorf("%s: %v: %s", name, err, said.String())
		}
	})
	return m
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-5000):])
}

// result is the result of a script in the machine.
type result struct {
	out, err string
	exit     int
}

// try runs a shell script as root in the machine, outside of the product's units. An error means no answer in time, as
// while the machine boots: the script is then lost.
func (m *machine) try(script string, within time.Duration) (r result, err error) {
	conn, err := net.DialTimeout("tcp", m.address, 10*time.Second)
	if err != nil {
		return r, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(within)); err != nil {
		return r, err
	}
	if _, err := fmt.Fprintf(conn, "%s\n%d\n%s", m.token, len(script), script); err != nil {
		return r, err
	}
	in := bufio.NewReader(conn)
	var out, errs int
	if _, err := fmt.Fscanf(in, "%d %d %d\n", &r.exit, &out, &errs); err != nil {
		return r, err
	}
	both := make([]byte, out+errs)
	if _, err := io.ReadFull(in, both); err != nil {
		return r, err
	}
	r.out, r.err = string(both[:out]), string(both[out:])
	return r, nil
}

// run is try for a machine that is up.
func (m *machine) run(script string) result {
	m.t.Helper()
	r, err := m.try(script, limit)
	if err != nil {
		m.t.Fatalf("%s does not answer: %v", m.name, err)
	}
	return r
}

// must runs a script that has to succeed, and returns its output.
func (m *machine) must(script string) string {
	m.t.Helper()
	r := m.run(script)
	if r.exit != 0 {
		m.t.Fatalf("%s: exit %d of\n%s\n%s%s", m.name, r.exit, script, r.out, r.err)
	}
	return strings.TrimSpace(r.out)
}

// until waits until a script succeeds, whether the machine answers or not.
func (m *machine) until(what, script string) {
	m.t.Helper()
	var r result
	err := errors.New("never asked")
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		if r, err = m.try(script, time.Minute); err == nil && r.exit == 0 {
			return
		}
	}
	m.t.Fatalf("%s: waited in vain for %s: %v, exit %d of\n%s\n%s%s", m.name, what, err, r.exit, script, r.out, r.err)
}

// up waits until systemd has started the machine's default services.
func (m *machine) up() {
	m.t.Helper()
	m.until("systemd to be up", "systemctl is-system-running | grep -qE 'running|degraded'")
}

// put writes a file in the machine.
func (m *machine) put(path, mode, text string) {
	m.t.Helper()
	m.must(fmt.Sprintf("install -D -m %s /dev/stdin %s <<'END-OF-FILE'\n%s\nEND-OF-FILE\n", mode, path, strings.TrimSuffix(text, "\n")))
}
