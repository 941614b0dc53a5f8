//go:build lab

package systemd

import (
	"os"
	"path/filepath"
	"testing"
)

// site is the two machines with the product on them, as the steps of a test
// make it.
type site struct {
	ctl1, n1 *machine
}

func TestUnits(t *testing.T) {
	dir := t.TempDir()
	image, initrd, token := disk(t, dir)
	s := &site{ctl1: power(t, dir, "ctl1", image, initrd, token), n1: power(t, dir, "n1", image, initrd, token)}
	s.ctl1.up()
	s.installBroker(t)
	s.n1.up()
	s.installAgent(t)
	hold(t, s.ctl1, s.n1)
}

// slurmdbd and slurmctld are there before the product is.
const startSlurm = `set -e
systemctl start mariadb
mysql -e "create user slurm@localhost identified via unix_socket; grant all on slurm_acct_db.* to slurm@localhost"
systemctl start slurmdbd`

const accounts = `set -e
sacctmgr -i add cluster cluster || sacctmgr -n list cluster | grep -q cluster
sacctmgr -i add account users
sacctmgr -i add user alice account=users`

// broker is section 1 of docs/ops/install.md.
const broker = `set -e
useradd --system --no-create-home --home-dir /var/lib/kernel-broker --shell /usr/sbin/nologin kernel-broker
sacctmgr -i add user kernel-broker account=root adminlevel=Admin
install -d -o kernel-broker -g kernel-broker -m 0755 /var/lib/kernel-broker
install -d -o slurm -g slurm -m 0750 /var/lib/kernel-broker/hook
cp /etc/kernel-broker/broker.yaml.sample /etc/kernel-broker/broker.yaml
cp /etc/kernel-broker/client.yaml.sample /etc/kernel-broker/client.yaml
kernel-broker --check
systemctl enable --now kernel-broker`

// agent is section 3, for a node where systemd runs slurmd.
const agent = `set -e
sed -e 's/^broker: .*/broker: ctl1:7440/' \
	-e 's/^  start: .*/  start: [systemctl, restart, slurmd]/' -e 's/^  first_start: .*/  first_start: []/' -e 's/^  stop: .*/  stop: [systemctl, stop, slurmd]/' \
	-e "s|^  initrd: .*|  initrd: $(echo /boot/initrd.img-*)|" \
	/etc/kernel-broker/agent.yaml.sample >/etc/kernel-broker/agent.yaml
install -D -m 0644 /usr/share/kernel-broker/slurmd.service.d/kernel-broker.conf \
	/etc/systemd/system/slurmd.service.d/kernel-broker.conf
systemctl daemon-reload
systemctl disable slurmd
kernel-broker-agent --check
systemctl enable --now kernel-broker-agent`

func (s *site) installBroker(t *testing.T) {
	s.ctl1.must(startSlurm)
	s.ctl1.until("slurmdbd", "sacctmgr -n list cluster")
	s.ctl1.must(accounts)
	s.ctl1.must("systemctl start slurmctld")
	s.ctl1.until("slurmctld", "scontrol ping | grep -q 'is UP'")
	s.ctl1.must(broker)
	s.ctl1.until("the broker's health", "kernelctl health")
	t.Log(s.ctl1.must("kernelctl profile apply /usr/share/kernel-broker/catalog --kernels /srv/kernels"))
}

func (s *site) installAgent(t *testing.T) {
	s.n1.must(agent)
	token := s.ctl1.must("kernelctl node token n1 --output-file /root/n1.token && cat /root/n1.token && rm /root/n1.token")
	s.n1.put("/etc/kernel-broker/token", "0600", token)
	s.n1.until("the node's certificate", "test ! -e /etc/kernel-broker/token && kernel-broker-agent status | grep -q 'connected *yes'")
	t.Log(s.n1.must("kernel-broker-agent status"))
}

// hold keeps the machines, for whoever develops this: KB_HOLD names a file that
// then has their addresses and tokens, until there is a /run/end on ctl1.
func hold(t *testing.T, machines ...*machine) {
	path := os.Getenv("KB_HOLD")
	if path == "" {
		return
	}
	text := ""
	for _, m := range machines {
		text += m.name + " " + m.address + " " + m.token + " " + filepath.Dir(m.console) + "\n"
	}
	write(t, path, text, 0o600)
	machines[0].until("end of hold", "test -e /run/end")
}
