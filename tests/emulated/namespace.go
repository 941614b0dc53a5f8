// SPDX-License-Identifier: Apache-2.0

package emulated

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/lab"
)

// startHolder makes the cluster's namespaces and waits until its root is there.
func (c *Cluster) startHolder(ctx context.Context, system, product string) error {
	watched, tie, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("namespaces: %w", err)
	}
	defer watched.Close()
	// Only this process has the other end, so that the cluster ends with it.
	c.tie = tie
	log, err := os.Create(c.options.Dir + "/holder.log")
	if err != nil {
		return fmt.Errorf("namespaces: %w", err)
	}
	defer log.Close()
	args := append(lab.UnshareArgs(c.mode), "/bin/sh", c.path("emulated/holder.sh"), c.options.Dir, system, product, frontAddress)
	for i := range c.options.Nodes {
		args = append(args, nodeAddress(i+1))
	}
	args = append(args, etcdAddress(0), etcdAddress(1))
	// Not CommandContext: the holder outlives the call.
	cmd := exec.Command("unshare", args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{watched}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("namespaces: %w", err)
	}
	c.holderEnded = make(chan struct{})
	go func() {
		_ = cmd.Wait() // its end is the result
		close(c.holderEnded)
	}()
	err = c.wait(ctx, 30*time.Second, "the cluster's namespaces", func() (bool, error) {
		select {
		case <-c.holderEnded:
			said, _ := os.ReadFile(log.Name())
			return false, fmt.Errorf("the holder ended: %s", strings.TrimSpace(string(said)))
		default:
		}
		_, err := os.Stat(c.path("ready"))
		return err == nil, nil
	})
	if err != nil {
		return err
	}
	pid, err := os.ReadFile(c.options.Dir + "/holder.pid")
	if err != nil {
		return fmt.Errorf("namespaces: %w", err)
	}
	c.holder, err = strconv.Atoi(strings.TrimSpace(string(pid)))
	return err
}

// stopHolder ends everything in the cluster.
func (c *Cluster) stopHolder() error {
	if c.tie == nil {
		return nil
	}
	if c.holder != 0 {
		if err := syscall.Kill(c.holder, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("holder: %w", err)
		}
	}
	if err := c.tie.Close(); err != nil {
		return fmt.Errorf("holder: %w", err)
	}
	c.tie = nil
	if c.holderEnded == nil {
		return nil
	}
	select {
	case <-c.holderEnded:
		return nil
	case <-time.After(time.Minute):
		return errors.New("holder: it does not end")
	}
}

// asCommand is the argument list that runs argv in the cluster as the user.
func (c *Cluster) asCommand(user string, argv []string) ([]string, error) {
	for _, a := range accounts {
		if a.name != user {
			continue
		}
		id := strconv.Itoa(a.id)
		path := "/opt/kernel-broker/bin:/usr/bin:/bin"
		if !strings.HasPrefix(a.home, "/home/") {
			path += ":/usr/sbin:/sbin"
		}
		args := append(lab.EnterArgs(c.mode, c.holder), "setpriv", "--reuid", id, "--regid", id, "--init-groups", "--reset-env",
			"/bin/sh", "-c", `cd "$HOME" 2>/dev/null || cd /; PATH=$0; export PATH; exec "$@"`, path)
		return append(args, argv...), nil
	}
	return nil, fmt.Errorf("user %q: the cluster has none", user)
}
