// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// cluster names the site in certificates and in etcd.
const cluster = "scale"

// broker is the built program, with a folder of its own.
type broker struct {
	program, dir, address string
	data                  string // its data folder
	more                  string // further settings
	cmd                   *exec.Cmd
	exited                chan struct{}
}

func (b *broker) path(name string) string { return filepath.Join(b.dir, name) }

// freeAddress has a port below those of outgoing connections, of which agents have thousands when the broker starts again.
func freeAddress() (string, error) {
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(10000))
		if l, err := net.Listen("tcp", address); err == nil {
			return address, l.Close()
		}
	}
	return "", errors.New("no free port between 20000 and 30000")
}

// connections is what the broker is allowed: each node's, and some that begin before others end.
func connections(nodes int) int { return max(nodes*5/4+1000, 8192) }

// configure writes the broker's settings: the defaults, but for paths and the number of connections.
func (b *broker) configure(nodes int, user string) error {
	settings := fmt.Sprintf("cluster: %s\ndata_dir: %s\nsocket: %s\nlisten: %s\npprof_socket: %s\nslurm: {bin_dir: %s, user: %s}\nlimits: {connections: %d}\n"+
		"snapshot: ''\npeers: {listen: '127.0.0.1:0'}\nmunge: {socket: ''}\npolicy: ''\n%s",
		cluster, b.data, b.path("broker.sock"), b.address, b.path("pprof.sock"), b.path("slurm"), user, connections(nodes), b.more)
	return os.WriteFile(b.path("broker.yaml"), []byte(settings), 0o644)
}

// configureHooks has hooks ask the first of these brokers that answers.
func (b *broker) configureHooks(brokers ...*broker) error {
	var sockets []string
	for _, one := range brokers {
		sockets = append(sockets, "unix://"+one.path("broker.sock"))
	}
	hooks := fmt.Sprintf("broker: '%s'\nca: ''\nscontrol: %s\nstate_dir: %s\nlog_file: %s\n",
		strings.Join(sockets, ","), b.path("slurm/scontrol"), b.path("hook"), b.path("hook.log"))
	return os.WriteFile(b.path("client.yaml"), []byte(hooks), 0o644)
}

// start runs the program; ended is called when it ends unasked.
func (b *broker) start(ended func(error)) error {
	log, err := os.OpenFile(b.path("broker.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd, exited := exec.Command(b.program, "--config", b.path("broker.yaml")), make(chan struct{})
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt of the terminal is ours
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("broker: %w (make build-go)", err)
	}
	b.cmd, b.exited = cmd, exited
	go func() {
		if err := cmd.Wait(); err != nil && cmd.ProcessState.ExitCode() > 0 {
			ended(fmt.Errorf("broker: %w, see %s", err, log.Name()))
		}
		close(exited)
	}()
	return nil
}

// stop sends a signal and waits for the end.
func (b *broker) stop(signal os.Signal) {
	if b.cmd != nil {
		_ = b.cmd.Process.Signal(signal) // it may have ended
		<-b.exited
	}
}

// ticks is how many make a second of processor time, on every Linux that we know.
const ticks = 100

// processor is the processor time that the broker took by itself: the commands that it ran are not in it.
func (b *broker) processor() (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", b.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	return processorOf(string(text))
}

// processorOf reads seconds of user and system time from a /proc/PID/stat. The program's name may have blanks.
func processorOf(stat string) (float64, error) {
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/PID/stat has %d fields behind the name", len(fields))
	}
	user, err := strconv.ParseFloat(fields[11], 64)
	system, serr := strconv.ParseFloat(fields[12], 64)
	return (user + system) / ticks, errors.Join(err, serr)
}

// memory is what the broker has in memory, in MB.
func (b *broker) memory() (mb float64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", b.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	var size, resident float64
	_, err = fmt.Sscan(string(text), &size, &resident)
	return resident * float64(os.Getpagesize()) / 1e6, err
}

// profile begins a profile of the broker's processor time. The function that it returns ends that, and leaves it and one of
// the memory in files that begin with path.
func (b *broker) profile(path string) (end func() error, err error) {
	conn, err := b.ask("profile?seconds=36000")
	if err != nil {
		return nil, err
	}
	return func() error {
		// A client that says no more has the profile end, and still reads.
		err := errors.Join(conn.CloseWrite(), save(conn, path+".cpu.pb.gz"))
		heap, herr := b.ask("heap")
		if herr == nil {
			herr = save(heap, path+".heap.pb.gz")
		}
		return errors.Join(err, herr)
	}, nil
}

// ask sends a request for a page of the broker's pprof.
func (b *broker) ask(page string) (*net.UnixConn, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: b.path("pprof.sock"), Net: "unix"})
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(conn, "GET /debug/pprof/%s HTTP/1.1\r\nHost: broker\r\n\r\n", page)
	return conn, err
}

// save keeps the answer.
func save(conn net.Conn, path string) error {
	defer conn.Close()
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return fmt.Errorf("profile of the broker: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("profile of the broker: %s: %.200s", response.Status, text)
	}
	return errors.Join(err, os.WriteFile(path, text, 0o644))
}
