// SPDX-License-Identifier: Apache-2.0

package munge_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/munge"
	"github.com/kernelbroker/kernelbroker/tests/support/mungetest"
)

func TestEncodeAndDecode(t *testing.T) {
	d := mungetest.Start(t)
	c := munge.New(d.Socket)
	for _, payload := range [][]byte{nil, []byte("x"), bytes.Repeat([]byte{0, 0xff}, 512)} {
		credential, err := c.Encode(t.Context(), payload, time.Minute)
		if err != nil || !strings.HasPrefix(credential, "MUNGE:") {
			t.Fatalf("Encode = %q, %v", credential, err)
		}
		got, err := c.Decode(t.Context(), credential)
		if err != nil || got.UID != uint32(os.Geteuid()) || got.GID != uint32(os.Getegid()) ||
			!bytes.Equal(got.Payload, payload) || !got.Host.IsValid() {
			t.Errorf("Decode = %+v, %v", got, err)
		}
		if age := time.Since(got.Encoded); age < 0 || age > time.Minute || got.Decoded.Before(got.Encoded) {
			t.Errorf("made at %v, read at %v", got.Encoded, got.Decoded)
		}
	}
	got, err := c.Decode(t.Context(), d.EncodeAs(4242, []byte("hers"), time.Minute))
	if err != nil || got.UID != 4242 || got.GID != 4242 || string(got.Payload) != "hers" {
		t.Errorf("another user: %+v, %v", got, err)
	}
}

// Debian's own tools understand us, and we them.
func TestDebiansToolsAgree(t *testing.T) {
	d := mungetest.Start(t)
	credential, err := munge.New(d.Socket).Encode(t.Context(), []byte("payload"), 90*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unmunge", "--socket="+d.Socket)
	cmd.Stdin = strings.NewReader(credential)
	out, err := cmd.Output()
	if err != nil || !strings.Contains(string(out), "payload") || !strings.Contains(string(out), "90") {
		t.Errorf("unmunge: %v\n%s", err, out)
	}
}

func TestCredentialsThatProveNothing(t *testing.T) {
	d, other := mungetest.Start(t), mungetest.Start(t)
	c := munge.New(d.Socket)
	encode := func(c *munge.Client, ttl time.Duration) string {
		credential, err := c.Encode(t.Context(), []byte("p"), ttl)
		if err != nil {
			t.Fatal(err)
		}
		return credential
	}
	good, old := encode(c, time.Minute), encode(c, time.Second)
	if _, err := c.Decode(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	changed := []byte(encode(c, time.Minute))
	changed[len(changed)/2] ^= 1
	// munged counts in whole seconds, and the last one counts whole.
	time.Sleep(2100 * time.Millisecond)
	for what, try := range map[string]struct {
		credential string
		want       error
	}{
		"again":           {good, munge.ErrReplayed},
		"too late":        {old, munge.ErrExpired},
		"changed":         {string(changed), munge.ErrForged},
		"another key":     {encode(munge.New(other.Socket), time.Minute), munge.ErrForged},
		"no credential":   {"", munge.ErrForged},
		"garbage":         {"MUNGE:garbage:", munge.ErrForged},
		"cut off":         {good[:len(good)/2], munge.ErrForged},
		"endless":         {"MUNGE:" + strings.Repeat("A", munge.MaxCredential) + ":", munge.ErrForged},
		"a zero in it":    {"MUNGE:\x00:", munge.ErrForged},
		"words before it": {"x " + good, munge.ErrForged},
	} {
		_, err := c.Decode(t.Context(), try.credential)
		if !errors.Is(err, try.want) || !errors.Is(err, kb.ErrUnauthenticated) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, bad := range []struct {
		credential string
		want       error
	}{{good, munge.ErrReplayed}, {old, munge.ErrExpired}} {
		if got, err := c.Decode(t.Context(), bad.credential); !errors.Is(err, bad.want) || got.UID != uint32(os.Geteuid()) {
			t.Errorf("whose it was: %+v, %v", got, err)
		}
	}
}

// What munged forgets, it accepts again: the broker has a memory of its own.
func TestARestartedMungedForgets(t *testing.T) {
	d := mungetest.Start(t)
	c := munge.New(d.Socket)
	credential, err := c.Encode(t.Context(), nil, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := c.Decode(t.Context(), credential); err != nil {
			t.Error(err)
		}
		d.Restart()
	}
}

func TestNoMunged(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "socket")
	for range 2 {
		_, err := munge.New(socket).Encode(t.Context(), nil, time.Minute)
		if !errors.Is(err, kb.ErrUnavailable) || !strings.Contains(err.Error(), socket) {
			t.Errorf("Encode = %v", err)
		}
		if _, err := munge.New(socket).Decode(t.Context(), "MUNGE:x:"); !errors.Is(err, kb.ErrUnavailable) || errors.Is(err, kb.ErrUnauthenticated) {
			t.Errorf("Decode = %v", err)
		}
		// The second time there is a file that is no socket.
		if err := os.WriteFile(socket, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// answer serves one connection with fixed bytes in the place of munged.
func answer(t *testing.T, reply []byte) *munge.Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = conn.Read(make([]byte, 4096))
		if reply == nil {
			_, _ = conn.Read(make([]byte, 1)) // hangs until the client goes
		}
		_, _ = conn.Write(reply)
	}()
	return munge.New(path)
}

func TestWhatIsNotMunged(t *testing.T) {
	for what, reply := range map[string][]byte{
		"nothing":       {},
		"HTTP":          []byte("HTTP/1.1 400 Bad Request\r\n\r\n"),
		"version 5":     {0, 0x60, 0x6d, 0x4b, 5, 5, 0, 0, 0, 0, 0},
		"another type":  {0, 0x60, 0x6d, 0x4b, 4, 3, 0, 0, 0, 0, 0},
		"huge":          {0, 0x60, 0x6d, 0x4b, 4, 5, 0, 0xff, 0xff, 0xff, 0xff},
		"empty":         {0, 0x60, 0x6d, 0x4b, 4, 5, 0, 0, 0, 0, 0},
		"half a header": {0, 0x60, 0x6d},
		"half a body":   {0, 0x60, 0x6d, 0x4b, 4, 5, 0, 0, 0, 0, 9, 1},
	} {
		if c, err := answer(t, reply).Decode(t.Context(), "MUNGE:x:"); !errors.Is(err, kb.ErrUnavailable) || errors.Is(err, kb.ErrUnauthenticated) {
			t.Errorf("%s: %+v, %v", what, c, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := answer(t, nil).Decode(ctx, "MUNGE:x:"); !errors.Is(err, kb.ErrUnavailable) || !strings.Contains(err.Error(), "in time") {
		t.Errorf("hangs: %v", err)
	}
}
