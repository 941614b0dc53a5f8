// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"bufio"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdstore"
)

// changes are the tasks by which a run changed something.
func changes(out string) string {
	var task string
	var all []string
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "TASK [") {
			task = line
		}
		if strings.HasPrefix(line, "changed: [") {
			all = append(all, task+line)
		}
	}
	return strings.Join(all, "")
}

// newEtcd has three hosts with folders of their own, on which only the role and openssl are real.
func newEtcd(t *testing.T) (*playbooks, []string) {
	t.Helper()
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("no openssl here")
	}
	p := newPlaybooks(t)
	user, group := fmt.Sprintf("%q", fmt.Sprint(os.Getuid())), fmt.Sprintf("%q", fmt.Sprint(os.Getgid()))
	on := p.dir + "/{{ etcd_one | default(inventory_hostname) }}"
	p.edit("roles/etcd", "/etc/etcd/ca", p.dir+"/ca", "/etc/etcd\n", on+"/etc\n", "/var/lib/etcd/", on+"/data/", "/etc/default/etcd", on+"/default",
		"/etc/systemd/system/etcd.service.d", on+"/dropins", "/usr/bin/etcd", p.dir+"/bin/etcd",
		"owner: root", "owner: "+user, "group: root", "group: "+group, "owner: etcd\n", "owner: "+user+"\n", "group: etcd", "group: "+group,
		"systemctl ", "host={{ inventory_hostname }} systemctl ", "    name: etcd\n", "    name: etcd@{{ inventory_hostname }}\n")
	p.edit("roles/package/tasks/newer.yml", "systemctl ", "host={{ inventory_hostname }} systemctl ")
	p.module("apt", `grep -q '"policy_rc_d": 101' "$1" || grep -q openssl "$1" || { echo '{"failed": true, "msg": "it would start"}'; exit; }
echo '{"changed": false}'`)
	p.module("systemd", `name=$(sed 's/.*"name": "\([^"]*\)".*/\1/' "$1") changed=false
grep -q '"no_block": true' "$1" || { echo '{"failed": true, "msg": "it would wait"}'; exit; }
[ -e "$state/$name" ] || changed=true
case $changed$(cat "$1") in
*'"_ansible_check_mode": true'* | false*) ;;
*) echo "start $name" >>"$state/log"
	mkdir "$state/../${name#etcd@}/data/kernel-broker/member"
	date --utc '+%a %Y-%m-%d %H:%M:%S.%6N UTC' >"$state/$name" ;;
esac
echo "{\"changed\": $changed}"`)
	p.program("systemctl", `case "$*" in
*is-active*) test -e "$state/etcd@$host" ;;
*show*) cat "$state/etcd@$host" ;;
*restart*)
	echo "stop $host $*" >>"$state/log"
	sleep 0.3
	date --utc '+%a %Y-%m-%d %H:%M:%S.%6N UTC' >"$state/etcd@$host"
	echo "start $host" >>"$state/log" ;;
esac`)
	p.program("etcdctl", `case "$ETCDCTL_ENDPOINTS $*" in
"https://127.0.0."*" endpoint health --cluster") [ ! -e "$state/unwell" ] ;;
"https://127.0.0."*" endpoint health") [ ! -e "$state/alone" ] ;;
"https://127.0.0."*" member list") cat "$state/members" ;;
*) echo "etcdctl $*" >>"$state/log"; exit 1 ;;
esac`)
	p.write("state/members", "1, started, n1\n", 0o644)
	p.program("etcd", "")
	p.write("state/log", "", 0o644)
	for i := range 3 {
		host := fmt.Sprintf("n%d", i+1)
		p.write("ansible/host_vars/"+host+".yml", fmt.Sprintf("etcd_address: 127.0.0.%d\n", i+2), 0o644)
		p.write(host+"/data/empty", "", 0o644)
		p.write(host+"/empty", "", 0o644)
	}
	p.write("ansible/etcd.yml", "- {hosts: slurm_nodes, gather_facts: false, roles: [etcd]}\n", 0o644)
	p.write("ansible/pair.yml", `- hosts: slurm_controller
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: etcd, tasks_from: certificate}
      vars: {etcd_pair: `+p.dir+`/broker/etcd, etcd_pair_owner: `+user+`}
`, 0o644)
	p.write("broker/empty", "", 0o644)
	return p, []string{"-e", "{etcd_members: [n1, n2, n3]}", "-e", "etcd_pair_owner=" + fmt.Sprint(os.Getuid())}
}

func (p *playbooks) certificate(name string) *x509.Certificate {
	p.t.Helper()
	block, _ := pem.Decode([]byte(p.read(name)))
	if block == nil {
		p.t.Fatalf("%s has no certificate", name)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

// Three bare hosts become members that start without waiting for each other; a second run changes nothing; another
// configuration takes one member after the other, and none while another is not well.
func TestEtcdMembers(t *testing.T) {
	p, args := newEtcd(t)
	p.run("etcd.yml", append(args, "--check")...)
	if entries, err := os.ReadDir(filepath.Join(p.dir, "n1/etc")); err == nil {
		t.Errorf("check mode leaves %v", entries)
	}
	p.run("etcd.yml", args...)
	log := strings.Split(p.read("state/log"), "\n")
	slices.Sort(log)
	if got := strings.Join(log, ", "); got != "start etcd@n1, start etcd@n2, start etcd@n3" {
		t.Errorf("the first run does %s", got)
	}
	roots := x509.NewCertPool()
	roots.AddCert(p.certificate("ca/ca.pem"))
	for i, host := range []string{"n1", "n2", "n3"} {
		c := p.certificate(host + "/etc/member.pem")
		for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
			if _, err := c.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
				t.Errorf("%s: %v", host, err)
			}
		}
		if got := fmt.Sprint(c.Subject.CommonName, c.DNSNames, c.IPAddresses); got != fmt.Sprintf("kernel-broker-etcd[%s] [127.0.0.%d 127.0.0.1]", host, i+2) {
			t.Errorf("the certificate is for %s", got)
		}
		if left := time.Until(c.NotAfter).Hours() / 24; left < 824 || left > 825 {
			t.Errorf("the certificate is good for %v days", left)
		}
	}
	for name, want := range map[string]os.FileMode{"ca": 0o700, "ca/ca.key": 0o600, "n1/etc/member.key": 0o600, "n1/etc/member.pem": 0o644,
		"n1/etc/member-ca.pem": 0o644, "n1/data/kernel-broker": 0o700} {
		if info, err := os.Stat(filepath.Join(p.dir, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	if out := p.run("etcd.yml", args...); changes(out) != "" {
		t.Errorf("the second run changes\n%s", changes(out))
	}

	p.write("state/log", "", 0o644)
	p.write("state/unwell", "", 0o644)
	other := slices.Concat(args, []string{"-e", "{etcd_config: {ETCD_HEARTBEAT_INTERVAL: 200}}"})
	if out := p.run("etcd.yml", append(other, "--check")...); !strings.Contains(changes(out), "Configure etcd") {
		t.Errorf("check mode shows\n%s", changes(out))
	}
	p.fails("repair that one", "etcd.yml", other...)
	if err := os.Remove(filepath.Join(p.dir, "state/unwell")); err != nil {
		t.Fatal(err)
	}
	p.write("state/members", "1, started, n1\n2, unstarted, , https://127.0.0.3:2380\n", 0o644)
	p.fails("repair that one", "etcd.yml", other...)
	if got := p.read("state/log"); got != "" {
		t.Errorf("with a member that is not well: %q", got)
	}
	p.write("state/members", "1, started, n1\n", 0o644)
	p.run("etcd.yml", other...)
	if got := p.read("state/log"); strings.Count(got, "stop") != 3 || strings.Contains(got, "no-block") {
		t.Errorf("the restarts are %q", got)
	} else {
		lines := strings.Split(got, "\n")
		for i := 0; i < len(lines); i += 2 {
			if strings.Fields(lines[i])[1] != strings.Fields(lines[i+1])[1] {
				t.Errorf("two members restart at the same time: %q", got)
			}
		}
	}
	if got := p.read("n2/default"); !strings.Contains(got, "ETCD_HEARTBEAT_INTERVAL=200\n") {
		t.Errorf("the configuration is\n%s", got)
	}

	// One that is away hinders no other.
	p.write("ansible/host_vars/n3.yml", "{etcd_address: 127.0.0.4, ansible_connection: ssh, ansible_host: 127.0.0.1, ansible_port: 1}\n", 0o644)
	out, err := p.try("etcd.yml", other...)
	if err == nil || !regexp.MustCompile(`(?s)n1 .*unreachable=0 +failed=0 .*n2 .*unreachable=0 +failed=0 .*n3 .*unreachable=1 `).MatchString(out) || changes(out) != "" {
		t.Errorf("with a member that is away: %v\n%s", err, out)
	}
}

// A cluster's members are not changed by another inventory, nor its authority by another first host.
func TestEtcdOfOtherInventory(t *testing.T) {
	p, args := newEtcd(t)
	p.fails("has 2 hosts", "etcd.yml", "-e", "{etcd_members: [n1, n2]}")
	one := []string{"-e", "{etcd_members: [n1]}", "--limit", "n1"}
	p.run("etcd.yml", append(args, one...)...)
	p.fails("n1: this member's cluster has other members", "etcd.yml", append(args, "--limit", "n2,n3")...)
	p.run("etcd.yml", append(args, "-e", "etcd_state=existing")...)
	if got := p.read("n1/default") + p.read("n2/default"); strings.Count(got, "STATE=new\n") != 1 || strings.Count(got, "STATE=existing\n") != 1 {
		t.Errorf("the configurations are\n%s", got)
	}
	if out := p.run("etcd.yml", args...); changes(out) != "" {
		t.Errorf("the run after it changes\n%s", changes(out))
	}
	p.fails("set etcd_ca_host to its host", "etcd.yml", append(args, "-e", "etcd_ca="+p.dir+"/other")...)
}

// A client gets a certificate that is no member's and no server's; it is replaced before it ends, and when the authority is
// another.
func TestEtcdClient(t *testing.T) {
	p, args := newEtcd(t)
	args = args[:2]
	p.fails("has no "+p.dir+"/ca/ca.pem", "pair.yml", args...)
	p.run("pair.yml", append(args, "--check")...)
	authority := func() {
		t.Helper()
		p.write("ansible/authority.yml", "- {hosts: n1, gather_facts: false, tasks: [{ansible.builtin.include_role: {name: etcd, tasks_from: authority}}]}\n", 0o644)
		p.run("authority.yml", args...)
	}
	authority()
	p.run("pair.yml", args...)
	first := p.certificate("broker/etcd.pem")
	if first.Subject.CommonName != "ctl1" || len(first.DNSNames)+len(first.IPAddresses) > 0 || !slices.Equal(first.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) {
		t.Errorf("the client is %s, %v, %v, for %v", first.Subject, first.DNSNames, first.IPAddresses, first.ExtKeyUsage)
	}
	if out := p.run("pair.yml", args...); changes(out) != "" {
		t.Errorf("the second run changes\n%s", changes(out))
	}
	key := p.read("broker/etcd.key")
	out := p.run("pair.yml", append(args, "-e", "etcd_renew_days=826")...)
	second := p.certificate("broker/etcd.pem")
	if second.Equal(first) || p.read("broker/etcd.key") == key || !strings.Contains(changes(out), "Sign the request") || strings.Contains(out, "PRIVATE") {
		t.Errorf("it is not replaced before it ends\n%s", out)
	}
	// A new authority is trusted before it signs.
	for _, name := range []string{"ca.pem", "ca.key"} {
		if err := os.Rename(filepath.Join(p.dir, "ca", name), filepath.Join(p.dir, "ca", "old"+strings.TrimPrefix(name, "ca"))); err != nil {
			t.Fatal(err)
		}
	}
	authority()
	p.run("pair.yml", args...)
	if err := p.certificate("broker/etcd.pem").CheckSignatureFrom(p.certificate("ca/ca.pem")); err != nil {
		t.Error(err)
	}
	if got := strings.Count(p.read("broker/etcd-ca.pem"), "BEGIN CERTIFICATE"); got != 2 {
		t.Errorf("%d authorities are trusted", got)
	}
}

// What the role writes makes a cluster of three real members, which the product's store uses with a broker's certificate, also
// with one member away. A client without a certificate gets nothing, and members take no client for one of them.
func TestEtcdOfThree(t *testing.T) {
	etcd, err := exec.LookPath("etcd")
	if err != nil {
		t.Skip("no etcd here (package etcd-server)")
	}
	p, args := newEtcd(t)
	ports := make([]int, 2)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.2:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports[i] = l.Addr().(*net.TCPAddr).Port
		_ = l.Close() // for etcd
	}
	p.run("etcd.yml", append(args, "-e", fmt.Sprintf("{etcd_client_port: %d, etcd_peer_port: %d}", ports[0], ports[1]))...)
	p.run("pair.yml", args[:2]...)
	var members []*exec.Cmd
	var endpoints []string
	for i := range 3 {
		host := fmt.Sprintf("n%d", i+1)
		if err := os.RemoveAll(filepath.Join(p.dir, host, "data/kernel-broker/member")); err != nil { // the stand-in's
			t.Fatal(err)
		}
		cmd := exec.Command(etcd)
		lines := bufio.NewScanner(strings.NewReader(p.read(host + "/default")))
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "ETCD_") {
				cmd.Env = append(cmd.Env, lines.Text())
			}
		}
		log, err := os.Create(filepath.Join(p.dir, host, "log"))
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // it reports the kill
			if t.Failed() {
				t.Logf("%s\n%s", host, p.read(host+"/log"))
			}
		})
		members = append(members, cmd)
		endpoints = append(endpoints, fmt.Sprintf("https://127.0.0.%d:%d", i+2, ports[0]))
	}
	open := func(endpoints []string, info transport.TLSInfo) (*etcdstore.Store, error) {
		t.Helper()
		return etcdstore.Open(t.Context(), etcdstore.Config{Endpoints: endpoints, Cluster: "lab", TLS: info.ClientConfig, Logger: slog.New(slog.DiscardHandler)})
	}
	broker := transport.TLSInfo{TrustedCAFile: filepath.Join(p.dir, "broker/etcd-ca.pem"),
		CertFile: filepath.Join(p.dir, "broker/etcd.pem"), KeyFile: filepath.Join(p.dir, "broker/etcd.key")}
	served := func(endpoints []string) {
		t.Helper()
		var err error
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Second / 5) {
			var s *etcdstore.Store
			if s, err = open(endpoints, broker); err == nil {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				return
			}
		}
		t.Fatalf("no store at %v: %v", endpoints, err)
	}
	for _, endpoint := range endpoints {
		served([]string{endpoint})
	}
	if s, err := open(endpoints, transport.TLSInfo{TrustedCAFile: broker.TrustedCAFile}); err == nil {
		_ = s.Close()
		t.Error("a client without a certificate is served")
	}
	asMember := func(pair, authority string) error {
		t.Helper()
		secured, err := transport.TLSInfo{TrustedCAFile: filepath.Join(p.dir, authority), CertFile: filepath.Join(p.dir, pair+".pem"),
			KeyFile: filepath.Join(p.dir, pair+".key")}.ClientConfig()
		if err != nil {
			t.Fatal(err)
		}
		client := http.Client{Transport: &http.Transport{TLSClientConfig: secured}, Timeout: time.Minute}
		answer, err := client.Get(fmt.Sprintf("https://127.0.0.3:%d/members", ports[1]))
		if err == nil {
			_ = answer.Body.Close()
		}
		return err
	}
	if err := asMember("n1/etc/member", "n1/etc/member-ca.pem"); err != nil {
		t.Error(err)
	}
	if err := asMember("broker/etcd", "broker/etcd-ca.pem"); err == nil {
		t.Error("members take a client for one of them")
	}
	_ = members[0].Process.Kill()
	served(endpoints[1:])
	served(endpoints)
}
