// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

func brokerChecks() []check {
	return []check{
		{"client-file", "client.yaml is valid", clientFile},
		{"hook-counters", "Slurm's hooks can count failures", hookCounters},
		{"broker-file", "broker.yaml is valid", brokerFile},
		{"broker-answers", "the broker answers from here", brokerAnswers},
		{"broker-health", "the broker reports no problem", brokerHealth},
		{"agent-port", "the port for agents can be reached", agentPort},
		{"tls", "nodes and broker authenticate by TLS", tlsOn},
		{"versions", "kernelctl, broker and agents are of one version", versions},
		{"clocks", "this host's clock agrees with the broker's", clocks},
		{"broker-certificate", "the broker's certificate and its authorities are good for long enough", brokerCertificate},
		{"node-certificates", "the nodes' certificates are renewed in time", nodeCertificates},
		{"artifact-room", "the store of kernels has room", artifactRoom},
		{"database-room", "the embedded etcd has room", databaseRoom},
		{"disk-room", "the disks have room", diskRoom},
	}
}

func clientFile(l *look) {
	if f, ok := need(l, l.Client); ok && f.Error != "" {
		l.wrong(f.Path, f.Error, "correct it; client.yaml.sample has every key. Slurm's hooks hold jobs until then")
	}
}

func hookCounters(l *look) {
	f, ok := need(l, l.Client)
	if !ok {
		return
	}
	if why, ok := need(l, f.Counters); ok && why != "" {
		l.warn(f.Path, why+": while the broker is away, jobs are held by Slurm's count of restarts, which counts requeues for other reasons, too", "install -d -o slurm -g slurm -m 0750 /var/lib/kernel-broker/hook, or state_dir of client.yaml")
	}
}

func brokerFile(l *look) {
	if f, ok := need(l, l.BrokerFile); ok && f.Error != "" {
		l.wrong(f.Path, f.Error, "correct it; kernel-broker --check says more")
	}
}

func brokerAnswers(l *look) {
	if a, ok := need(l, l.Broker); ok && a.Error != "" {
		l.wrong(a.Address, a.Error, "systemctl status kernel-broker on its host; broker, ca and munge of client.yaml; a firewall between")
	}
}

func brokerHealth(l *look) {
	h, ok := need(l, l.Health)
	if !ok {
		return
	}
	for _, component := range slices.Sorted(maps.Keys(h.Ill)) {
		l.wrong(component, h.Ill[component], "docs/ops/troubleshooting.md, the section on the broker")
	}
}

func agentPort(l *look) {
	if p, ok := need(l, l.Port); ok && p.Error != "" {
		l.wrong(p.Address, p.Error, "listen of broker.yaml and broker of agent.yaml; a firewall between")
	}
}

const tlsNone = "none"

func tlsOn(l *look) {
	const remedy = "set tls.mode to own in broker.yaml and in each agent.yaml, and enrol the nodes; docs/ops/trust.md"
	known := false
	if f := l.BrokerFile.Value; f != nil && f.Error == "" {
		if known = true; f.TLS == tlsNone {
			l.warn(f.Path, "TLS is off: any client that reaches the port can name any node", remedy)
		}
	}
	if a := l.Agent.Value; a != nil && a.Error == "" {
		if known = true; a.TLS == tlsNone {
			l.warn(a.Path, "TLS is off: any host at the broker's address can boot this node", remedy)
		}
	}
	if f := l.Client.Value; f != nil && f.Error == "" && !f.Local {
		if known = true; !f.TLS {
			l.warn(f.Path, "TLS is off: the broker is not authenticated", "set ca in client.yaml; kernelctl authority show prints the file")
		}
	}
	if !known {
		l.skip("this host has no configuration that says so")
	}
}

// versions compares in exact words: versions of one release belong together, and an upgrade passes through others.
func versions(l *look) {
	h, ok := need(l, l.Health)
	if !ok {
		return
	}
	if l.Version != h.Version {
		l.warn(l.Host, fmt.Sprintf("kernelctl is %s, the broker is %s", l.Version, h.Version), "install the same version on both hosts, the broker first")
	}
	nodes, ok := need(l, l.Nodes)
	if !ok {
		return
	}
	others := map[string][]string{}
	unknown := 0
	for _, n := range nodes {
		switch {
		case !n.Connected:
		case n.AgentVersion == "":
			unknown++
		case n.AgentVersion != h.Version:
			others[n.AgentVersion] = append(others[n.AgentVersion], n.Name)
		}
	}
	for _, v := range slices.Sorted(maps.Keys(others)) {
		l.warn(names(others[v]), fmt.Sprintf("the agent is %s, the broker is %s", v, h.Version), "install the broker's version on the nodes; docs/ops/install.md")
	}
	if unknown > 0 {
		l.skip("the broker or an agent does not tell the agent's version")
	}
}

// maxAhead is far above what time servers leave, and below what MUNGE and certificates accept.
const maxAhead = 5 * time.Second

func clocks(l *look) {
	h, ok := need(l, l.Health)
	switch {
	case !ok:
	case h.Ahead == nil:
		l.skip("the broker is older and does not tell its time")
	case h.Ahead.Abs() > maxAhead:
		l.wrong(l.Host, fmt.Sprintf("the broker's clock is %v ahead of this host's: MUNGE and certificates are refused", h.Ahead.Round(time.Second)), "synchronise the clocks (chrony, systemd-timesyncd)")
	}
}

// late reports whether a certificate has passed its renewal: at two thirds of its time, and some time after for nodes
// that were off.
func (l *look) late(c Certificate) bool {
	return l.Now.After(c.From.Add(c.Until.Sub(c.From) / 6 * 5))
}

func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04Z") }

func brokerCertificate(l *look) {
	p, ok := need(l, l.Port)
	switch {
	case !ok:
	case p.Error != "":
		l.skip("the port for agents cannot be reached")
	case p.Certificate == nil:
		l.skip("the port for agents shows no certificate")
	default:
		c := *p.Certificate
		if l.Now.After(c.Until) {
			l.wrong(p.Address, "the broker's certificate ended on "+day(c.Until)+": no agent can connect", "restart the broker (tls.mode own), or renew the site's certificate")
		} else if l.late(c) {
			l.warn(p.Address, "the broker's certificate ends on "+day(c.Until), "restart the broker (tls.mode own), or renew the site's certificate")
		}
	}
	authorities, ok := need(l, l.Authorities)
	if !ok {
		return
	}
	if len(authorities) == 0 {
		l.skip("the broker tells of no authority")
		return
	}
	newest := slices.MaxFunc(authorities, func(a, b Certificate) int { return a.Until.Compare(b.Until) })
	if l.late(newest) {
		l.warn("authority", "the newest authority ends on "+day(newest.Until), "kernelctl authority rotate, then copy ca.pem to the login nodes")
	}
}

func nodeCertificates(l *look) {
	nodes, ok := need(l, l.Certificates)
	if ok {
		for _, name := range slices.Sorted(maps.Keys(nodes)) {
			if !l.left(name) {
				l.certificate(name, nodes[name])
			}
		}
	}
	if a := l.Agent.Value; a != nil && a.TLS != tlsNone && a.Error == "" {
		if c, ok := need(l, a.Certificate); ok {
			l.certificate(a.Node, []Certificate{c})
		}
	}
}

func (l *look) certificate(node string, good []Certificate) {
	const remedy = "kernelctl node token NODE, and the token to /etc/kernel-broker/token of the node; its agent's log says why it did not renew"
	if len(good) == 0 {
		l.wrong(node, "it has no certificate that is good, and no unused token: it cannot connect", remedy)
		return
	}
	newest := slices.MaxFunc(good, func(a, b Certificate) int { return a.Until.Compare(b.Until) })
	if l.Now.After(newest.Until) {
		l.wrong(node, "its certificate ended on "+day(newest.Until), remedy)
	} else if l.late(newest) {
		l.warn(node, "its certificate ends on "+day(newest.Until)+" and was not renewed at two thirds of its time", remedy)
	}
}

// full is the share of a limit at which a store has too little room.
const full = 0.9

func (l *look) capacity(c Capacity, remedy string) {
	if c.Limit > 0 && float64(c.Used) > full*float64(c.Limit) {
		l.warn(c.Name, fmt.Sprintf("%d of %d MiB are used", c.Used>>20, c.Limit>>20), remedy)
	}
}

func artifactRoom(l *look) {
	if c, ok := need(l, l.Artifacts); ok {
		l.capacity(c, "retire versions that nobody uses, then kernelctl artifact gc; or artifacts.max_bytes of broker.yaml")
	}
}

func databaseRoom(l *look) {
	if c, ok := need(l, l.Database); ok {
		l.capacity(c, "lower keep_jobs in broker.yaml; or use an etcd cluster (etcd.endpoints)")
	}
}

func diskRoom(l *look) {
	disks, ok := need(l, l.Disks)
	if !ok {
		return
	}
	for _, d := range disks {
		least := d.Least
		if least == 0 {
			least = min(d.Size/20, 2<<30)
		}
		if d.Free < least {
			l.warn(d.Path, fmt.Sprintf("%d MiB are free, %d should be", d.Free>>20, least>>20), "make room on that disk, or mount another one there (another folder needs ReadWritePaths= in a drop-in of the unit, too)")
		}
	}
}
