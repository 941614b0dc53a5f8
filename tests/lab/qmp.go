// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"
)

// qmpLimit bounds one exchange with a machine's monitor.
const qmpLimit = 30 * time.Second

type qmpMessage struct {
	Greeting json.RawMessage `json:"QMP"`
	Event    string          `json:"event"`
	Error    *struct {
		Class string `json:"class"`
		Desc  string `json:"desc"`
	} `json:"error"`
}

// QMP sends one command to a machine's monitor at the socket and waits until it took it.
func QMP(ctx context.Context, socket, command string) error {
	ctx, cancel := context.WithTimeout(ctx, qmpLimit)
	defer cancel()
	conn, err := dialUnix(ctx, socket)
	if err != nil {
		return fmt.Errorf("monitor %q: %w", socket, err)
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return fmt.Errorf("monitor %q: %w", socket, err)
		}
	}
	in := json.NewDecoder(conn)
	var hello qmpMessage
	if err := in.Decode(&hello); err != nil || hello.Greeting == nil {
		return fmt.Errorf("monitor %q: greeting: %w", socket, err)
	}
	for _, c := range []string{"qmp_capabilities", command} {
		if err := qmpExecute(conn, in, c); err != nil {
			return fmt.Errorf("monitor %q: %q: %w", socket, c, err)
		}
	}
	return nil
}

func qmpExecute(conn net.Conn, in *json.Decoder, command string) error {
	if err := json.NewEncoder(conn).Encode(map[string]string{"execute": command}); err != nil {
		return err
	}
	for {
		var m qmpMessage
		if err := in.Decode(&m); err != nil {
			return err
		}
		switch {
		case m.Error != nil:
			return fmt.Errorf("%s: %s", m.Error.Class, m.Error.Desc)
		case m.Event == "":
			return nil
		}
	}
}

// dialUnix reaches a socket at any depth: its address is limited to 107 bytes, so it goes through the folder's file
// descriptor.
func dialUnix(ctx context.Context, path string) (net.Conn, error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	var d net.Dialer
	return d.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
}
