// SPDX-License-Identifier: Apache-2.0

//go:build lab

package systemd

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/hostclock"
	"github.com/kernelbroker/kernelbroker/tests/lab"
)

// limit is generous for a loaded host with emulation; conditions are noticed at once.
const limit = 15 * time.Minute

// host is a row of a test's table of machines.
type host struct {
	name    string
	address string // in the machines' own network
	memory  int    // in MiB
	groups  []string
	card    string // the kind of its network cards, where not virtio's
	// Where the root is not the test's disk as /dev/vda: the kernel's arguments that name it, and its devices in QEMU.
	root, devices []string
}

// two are the broker's host and a node; the groups are those of the inventory where Ansible installs them.
var two = []host{
	{name: "ctl1", address: "10.77.0.1", memory: 1024, groups: []string{"slurm_dbd", "slurm_controller", "slurm_submit"}},
	{name: "n1", address: "10.77.0.11", memory: 1024, groups: []string{"slurm_nodes"}},
}

// machine is a virtual machine with Debian's systemd. Its processor is always emulated: speed does not matter here.
type machine struct {
	host
	t       *testing.T
	limit   time.Duration // of a condition
	token   string
	channel string // the address of the channel for commands, on this host
	ssh     string // of sshd, on this host
	monitor string
	console string
	ended   chan struct{} // closed with the machine's process
}

// boot is what the machines of a test start from.
type boot struct {
	dir                   string // for what belongs to one test
	hosts                 []host
	limit                 time.Duration
	image, kernel, initrd string
	token                 string // of the channel for commands
	channel               string // more options of QEMU for the network card of the channel
}

// interrupt is done when somebody ends the tests, who then power the machines off and remove their disks.
var interrupt = sync.OnceValue(func() context.Context {
	ctx, _ := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	return ctx
})

// start starts the machines, in the order of their table.
func (b boot) start(t *testing.T) (machines []*machine) {
	t.Helper()
	interrupt()
	connect(t, b.dir, b.hosts)
	for _, h := range b.hosts {
		machines = append(machines, power(t, b, h))
	}
	return machines
}

// power starts a machine. It ends with the test, and its disk is discarded. The first network card is the channel for
// commands and for ssh, the second one the machines' own network.
func power(t *testing.T, b boot, h host) *machine {
	t.Helper()
	in := func(kind string) string { return filepath.Join(b.dir, h.name+kind) }
	m := &machine{host: h, t: t, limit: b.limit, token: b.token, channel: freePort(t), ssh: freePort(t),
		monitor: in(".qmp"), console: in(".console"), ended: make(chan struct{})}
	if err := os.MkdirAll(in(".tmp"), 0o755); err != nil {
		t.Fatal(err)
	}
	root, devices := h.root, h.devices
	if root == nil {
		root = []string{"root=/dev/vda", "ro"}
		devices = []string{"-drive", "if=virtio,format=raw,snapshot=on,cache=unsafe,file.locking=off,file=" + b.image}
	}
	arguments := slices.Concat(root, []string{"console=ttyS0,115200", "panic=3", "no_timer_check", "net.ifnames=0",
		"random.trust_cpu=on", "kb.node=" + h.name, "kb.ip=" + h.address + "/24"}, hostclock.Arguments())
	card := cmp.Or(h.card, "virtio-net-pci")
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	qemu := exec.CommandContext(ctx, "qemu-system-x86_64", append([]string{
		"-accel", "tcg,thread=multi,tb-size=256", "-M", "q35", "-cpu", "qemu64,+rdrand", "-smp", "1", "-m", fmt.Sprint(h.memory),
		"-nodefaults", "-no-user-config", "-display", "none", "-name", h.name,
		"-kernel", b.kernel, "-initrd", b.initrd, "-append", strings.Join(arguments, " "),
		"-netdev", "user,id=channel,hostfwd=tcp:" + m.channel + "-10.0.2.15:7000,hostfwd=tcp:" + m.ssh + "-10.0.2.15:22" + b.channel,
		"-device", card + ",netdev=channel,romfile=,mac=52:54:00:77:00:01",
		"-netdev", "dgram,id=cluster,local.type=unix,local.path=" + portOf(b.dir, h) + ",remote.type=unix,remote.path=" + switchIn(b.dir),
		"-device", card + ",netdev=cluster,romfile=,mac=" + macOf(h),
		"-device", "virtio-rng-pci",
		"-qmp", "unix:" + m.monitor + ",server=on,wait=off",
		"-serial", "file:" + m.console}, devices...)...)
	qemu.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + in(".tmp")}
	var said strings.Builder
	qemu.Stdout, qemu.Stderr = &said, &said
	if err := qemu.Start(); err != nil {
		cancel()
		t.Fatalf("%v (make deps)", err)
	}
	var result error
	go func() {
		result = qemu.Wait()
		close(m.ended)
	}()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s: the console's end:\n%s", h.name, tail(m.console))
		}
		alone := m.gone() && interrupt().Err() == nil
		cancel()
		<-m.ended
		if alone {
			t.Errorf("%s: its process has ended: %v: %s", h.name, result, said.String())
		}
	})
	return m
}

// gone reports whether the machine's process has ended.
func (m *machine) gone() bool {
	select {
	case <-m.ended:
		return true
	default:
		return false
	}
}

// press sends the machine's monitor a command: stop and cont are its power, without which it is silent, system_reset is
// its reset button.
func (m *machine) press(command string) {
	m.t.Helper()
	if err := lab.QMP(m.t.Context(), m.monitor, command); err != nil {
		m.t.Fatalf("%s: %v", m.name, err)
	}
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
	conn, err := net.DialTimeout("tcp", m.channel, 10*time.Second)
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
	r, err := m.try(script, m.limit)
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
	// The more there is to wait for, the more machines share the processors.
	for end := time.Now().Add(m.limit); time.Now().Before(end); time.Sleep(m.limit / 1800) {
		if r, err = m.try(script, 90*time.Second); err == nil && r.exit == 0 {
			return
		}
		if m.gone() || interrupt().Err() != nil {
			break
		}
	}
	m.t.Fatalf("%s: waited in vain for %s: %v, exit %d of\n%s\n%s%s", m.name, what, err, r.exit, script, r.out, r.err)
}

// up waits until systemd has started the machine's default services.
func (m *machine) up() {
	m.t.Helper()
	m.until("systemd to be up", "systemctl is-system-running | grep -qE 'running|degraded'")
}

// bootID tells a boot from all others.
const bootID = "cat /proc/sys/kernel/random/boot_id"

// reboot reboots the machine by its own systemd.
func (m *machine) reboot() {
	m.t.Helper()
	before := m.must(bootID)
	_, _ = m.try("systemctl reboot", time.Minute) // the answer may be lost
	m.boots(before)
}

// boots waits until the machine is up after another boot than that one.
func (m *machine) boots(before string) {
	m.t.Helper()
	m.until("another boot", "test \"$("+bootID+")\" != "+before)
	m.up()
}

// journal is what the machine's services said last, for a failure.
func (m *machine) journal() string {
	r, err := m.try("journalctl --no-pager -b -n 60 -o short-iso; systemctl --no-legend --plain --failed; tail -n 25 /var/log/slurm/*.log", 2*time.Minute)
	if err != nil {
		return err.Error()
	}
	return r.out
}

// put writes a file in the machine.
func (m *machine) put(path, mode, text string) {
	m.t.Helper()
	m.must(fmt.Sprintf("install -D -m %s /dev/stdin %s <<'END-OF-FILE'\n%s\nEND-OF-FILE\n", mode, path, strings.TrimSuffix(text, "\n")))
}

// quote is a text as a word of the shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// step is a subtest that continues the one before it.
type step struct {
	name string
	do   func(*testing.T)
}

// steps runs subtests up to the first failure, which shows what the machines' services said last.
func steps(t *testing.T, machines []*machine, all ...step) {
	t.Helper()
	report := func(t *testing.T) {
		for _, m := range machines {
			m.t = t
		}
	}
	defer report(t)
	for _, s := range all {
		done := t.Run(s.name, func(t *testing.T) {
			report(t)
			began := time.Now()
			t.Cleanup(func() {
				t.Logf("%s: %s", s.name, time.Since(began).Round(time.Second))
				for _, m := range machines {
					if t.Failed() && interrupt().Err() == nil {
						t.Logf("%s: the journal's end:\n%s", m.name, m.journal())
					}
				}
			})
			s.do(t)
		})
		if !done {
			return
		}
	}
}

// hold keeps the machines, for whoever develops this or wants a site to try: KB_HOLD names a file that then has the
// addresses and tokens of the channels for commands, until an interrupt or a /run/end on the first machine.
func hold(t *testing.T, machines []*machine, hints ...string) {
	path := os.Getenv("KB_HOLD")
	if path == "" || interrupt().Err() != nil {
		return
	}
	text := ""
	for _, m := range machines {
		text += m.name + " " + m.channel + " " + m.token + " " + filepath.Dir(m.console) + "\n"
	}
	write(t, path, text, 0o600)
	t.Logf("the machines stay until an interrupt, see %s\n%s", path, strings.Join(hints, "\n"))
	for interrupt().Err() == nil && !machines[0].gone() {
		if r, err := machines[0].try("test -e /run/end", time.Minute); err == nil && r.exit == 0 {
			return
		}
		time.Sleep(time.Second)
	}
}
