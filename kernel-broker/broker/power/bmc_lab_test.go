// SPDX-License-Identifier: Apache-2.0

//go:build lab

package power

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// documented returns the line of docs/ops/kexec.md that runs a program.
func documented(t *testing.T, program string) []string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/ops/kexec.md")
	if err != nil {
		t.Fatal(err)
	}
	for part := range strings.SplitSeq(string(text), "```yaml\n") {
		block, _, _ := strings.Cut(part, "```")
		var found struct {
			ResetCommand []string `yaml:"reset_command"`
		}
		if yaml.Unmarshal([]byte(block), &found) == nil && len(found.ResetCommand) > 0 && found.ResetCommand[0] == program {
			return found.ResetCommand
		}
	}
	t.Fatalf("docs/ops/kexec.md has no reset_command with %s", program)
	return nil
}

// with replaces parts of arguments; each must be there.
func with(t *testing.T, argv []string, pairs ...string) []string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(strings.Join(argv, " "), pairs[i]) {
			t.Fatalf("%q is not in %q", pairs[i], argv)
		}
		for j := range argv {
			argv[j] = strings.ReplaceAll(argv[j], pairs[i], pairs[i+1])
		}
	}
	return argv
}

// node is the name that makes NODE of a command an address on this host.
const node = "127.0.0.1"

func write(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// start runs an emulator until the test ends.
func start(t *testing.T, argv ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
		if text, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("%s said\n%s", filepath.Base(argv[0]), text)
		}
	})
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); {
		if time.Now().After(end) {
			t.Fatalf("not seen: %s", what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// freePort is one that nobody has; network is udp or tcp.
func freePort(t *testing.T, network string) int {
	t.Helper()
	if network == "udp" {
		c, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.LocalAddr().(*net.UDPAddr).Port
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// The documented line power cycles a machine by OpenIPMI's simulated controller, and fails with a wrong password or user,
// and where no controller answers.
func TestIPMI(t *testing.T) {
	dir, port := t.TempDir(), freePort(t, "udp")
	log, state := filepath.Join(dir, "chassis.log"), write(t, filepath.Join(dir, "power"), "1\n", 0o600)
	chassis := write(t, filepath.Join(dir, "chassis"), `#!/bin/sh
# get power, or set power 0 or 1: what the simulated controller asks of the machine.
case "$*" in
"get power") echo power:$(cat `+state+`) ;;
"set power "*) echo $3 >`+state+`; echo "$@" >>`+log+` ;;
*) exit 1 ;;
esac
`, 0o755)
	lan := write(t, filepath.Join(dir, "lan.conf"), fmt.Sprintf(`name "n1"
set_working_mc 0x20
  startlan 1
    addr 127.0.0.1 %d
    priv_limit admin
    allowed_auths_user none md5
    allowed_auths_operator none md5
    allowed_auths_admin none md5
    guid a123456789abcdefa123456789abcdef
  endlan
  chassis_control "%s"
  user 2 true "kernel-broker" "secret" operator 10 none md5
`, port, chassis), 0o600)
	commands := write(t, filepath.Join(dir, "emu"), "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\nmc_enable 0x20\n", 0o600)
	start(t, "ipmi_sim", "-n", "-c", lan, "-f", commands, "-s", dir)
	secret, wrong := write(t, filepath.Join(dir, "password"), "secret", 0o600), write(t, filepath.Join(dir, "wrong"), "guess", 0o600)
	reset := func(user, file string, port int) error {
		argv := with(t, documented(t, "/usr/bin/ipmitool"), "{node}-bmc", "{node}", "kernel-broker", user)
		argv = with(t, argv, "/etc/"+user+"/bmc.password", file)
		c, err := New(slices.Insert(argv, 3, "-p", strconv.Itoa(port)))
		if err != nil {
			t.Fatal(err)
		}
		return c.Reset(t.Context(), node)
	}
	cycled := func() bool {
		text, err := os.ReadFile(log)
		return err == nil && strings.HasPrefix(string(text), "set power 0\nset power 1\n")
	}
	eventually(t, "a power cycle", func() bool { return reset("kernel-broker", secret, port) == nil })
	eventually(t, "the machine off and on", cycled)
	for name, err := range map[string]error{
		"a wrong password": reset("kernel-broker", wrong, port),
		"no such user":     reset("nobody", secret, port),
		"no controller":    reset("kernel-broker", secret, freePort(t, "udp")),
	} {
		if err == nil || !strings.Contains(err.Error(), `node "127.0.0.1"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The documented line restarts a machine by Redfish, and fails with a wrong password, for an unknown system, and where no
// controller answers.
func TestRedfish(t *testing.T) {
	cmd := exec.Command("../../../.ci/sushy-emulator")
	cmd.Stderr = os.Stderr
	path, err := cmd.Output()
	if err != nil {
		t.Fatalf("sushy-emulator: %v", err)
	}
	const system = "9b8f1c2e-0000-4000-8000-000000000001"
	dir, port := t.TempDir(), freePort(t, "tcp")
	// The hash is of the word secret.
	users := write(t, filepath.Join(dir, "htpasswd"), "kernel-broker:$2b$04$BCbCgO3j6utnpjRzqXBRreiIpCsTE56dfsSSoH36.imfXyLAWmoEW\n", 0o600)
	config := write(t, filepath.Join(dir, "emulator.conf"), fmt.Sprintf(`SUSHY_EMULATOR_STATE_DIR = %q
SUSHY_EMULATOR_AUTH_FILE = %q
SUSHY_EMULATOR_FAKE_SYSTEMS = [{"uuid": %q, "name": "n1", "power_state": "On", "nics": []}]
`, dir, users, system), 0o600)
	start(t, strings.TrimSpace(string(path)), "--fake", "--config", config, "-i", "127.0.0.1", "-p", strconv.Itoa(port))
	secret, wrong := write(t, filepath.Join(dir, "good"), "user = \"kernel-broker:secret\"\n", 0o600), write(t, filepath.Join(dir, "wrong"), "user = \"kernel-broker:guess\"\n", 0o600)
	reset := func(file, system string, port int) error {
		c, err := New(with(t, documented(t, "/usr/bin/curl"), "/etc/kernel-broker/redfish.curl", file,
			"https://{node}-bmc/", fmt.Sprintf("http://{node}:%d/", port), "Systems/1/", "Systems/"+system+"/"))
		if err != nil {
			t.Fatal(err)
		}
		return c.Reset(t.Context(), node)
	}
	power := func() string {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/redfish/v1/Systems/%s", port, system), nil)
		if err != nil {
			t.Fatal(err)
		}
		request.SetBasicAuth("kernel-broker", "secret")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return ""
		}
		defer response.Body.Close()
		var found struct{ PowerState string }
		if json.NewDecoder(response.Body).Decode(&found) != nil {
			return ""
		}
		return found.PowerState
	}
	eventually(t, "the machine on", func() bool { return power() == "On" })
	for name, err := range map[string]error{
		"a wrong password": reset(wrong, system, port),
		"another system":   reset(secret, "1", port),
		"no controller":    reset(secret, system, freePort(t, "tcp")),
	} {
		if err == nil || !strings.Contains(err.Error(), `node "127.0.0.1"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if state := power(); state != "On" {
		t.Errorf("a refused reset left the machine %s", state)
	}
	if err := reset(secret, system, port); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the machine off", func() bool { return power() == "Off" })
	eventually(t, "the machine on again", func() bool { return power() == "On" })
}
