// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

func brokerChecks() []check {
	return []check{
		{"client-file", "client.yaml is valid", clientFile},
		{"hook-counters", "Slurm's hooks can count failures", hookCounters},
		{"broker-file", "broker.yaml is valid", brokerFile},
		{"cluster", "broker, clients and nodes name the same cluster", cluster},
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

func clientFile(e *examination) {
	f, ok := need(e, e.Client)
	if !ok {
		return
	}
	if f.Error != "" {
		e.wrong(f.Path, f.Error, "correct it; client.yaml.sample has every key. Slurm's hooks hold jobs until then")
	}
	e.commands(f.Path, f.Commands)
}

// commands reports programs of a configuration that are not there.
func (e *examination) commands(file string, list []Command) {
	for _, c := range list {
		if c.Error != "" {
			e.wrong(file, c.Key+": "+c.Error, "install the program, or correct "+c.Key+" in "+file)
		}
	}
}

func hookCounters(e *examination) {
	f, ok := need(e, e.Client)
	if !ok {
		return
	}
	if why, ok := need(e, f.Counters); ok && why != "" {
		e.warn(f.Path, why+": while the broker is away, jobs are held by Slurm's count of restarts, which counts requeues for other reasons, too", "install -d -o slurm -g slurm -m 0750 /var/lib/kernel-broker/hook, or state_dir of client.yaml")
	}
}

func brokerFile(e *examination) {
	if f, ok := need(e, e.BrokerFile); ok && f.Error != "" {
		e.wrong(f.Path, f.Error, "correct it; kernel-broker --check says more")
	}
}

func brokerAnswers(e *examination) {
	a, ok := need(e, e.Broker)
	if !ok || a.Error == "" {
		return
	}
	remedy := "systemctl status kernel-broker on its host; broker, ca and munge of client.yaml; a firewall between"
	for _, r := range refusals {
		if strings.Contains(a.Error, r.says) {
			remedy = r.remedy
			break
		}
	}
	e.wrong(a.Address, a.Error, remedy)
}

// refusals are what a broker's host or this one says where the broker runs and is reached.
var refusals = []struct{ says, remedy string }{
	{"not a broker of cluster", clusterRemedy},
	{"this is the broker of", clusterRemedy},
	{"certificate signed by unknown authority", "kernelctl setup client --fingerprint, with what kernelctl authority show prints on the broker's host"},
}

const clusterRemedy = "set cluster of client.yaml to cluster of the broker's broker.yaml, or point broker of client.yaml to this cluster's broker"

// cluster compares the names that this host sees. A broker of another name has another catalog and other certificates.
func cluster(e *examination) {
	var said []string
	names := map[string]bool{}
	add := func(where, name string) {
		if name != "" {
			said, names[name] = append(said, where+" says "+strconv.Quote(name)), true
		}
	}
	if f := e.BrokerFile.Value; f != nil {
		add(f.Path, f.Cluster)
	}
	if p := e.Port.Value; p != nil && p.Certificate != nil {
		add("the broker's certificate", p.Certificate.Cluster)
	}
	if f := e.Client.Value; f != nil {
		add(f.Path, f.Cluster)
	}
	if a := e.Agent.Value; a != nil && a.Certificate.Value != nil {
		add("this node's certificate", a.Certificate.Value.Cluster)
	}
	switch {
	case len(names) > 1:
		e.wrong("cluster", strings.Join(said, ", ")+": they refuse each other, and a broker with another name begins with an empty catalog",
			"set the same cluster in broker.yaml and in client.yaml, and restart the broker; a node whose certificate has another name: kernelctl node token NODE, and the token to /etc/kernel-broker/token of the node")
	case len(said) < 2:
		e.skip("this host sees the cluster's name in one place only")
	}
}

func brokerHealth(e *examination) {
	h, ok := need(e, e.Health)
	if !ok {
		return
	}
	const all = "docs/ops/troubleshooting.md, the section on the broker"
	remedy := func(component string) string {
		if one := componentRemedies[component]; one != "" {
			return one + "; " + all
		}
		return all
	}
	for _, component := range slices.Sorted(maps.Keys(h.Ill)) {
		e.wrong(component, h.Ill[component], remedy(component))
	}
	for _, component := range slices.Sorted(maps.Keys(h.Warned)) {
		e.warn(component, h.Warned[component], remedy(component))
	}
}

// componentRemedies are first steps.
var componentRemedies = map[string]string{
	"configuration": "kernel-broker --check, then systemctl restart kernel-broker (jobs and switches go on); or undo the edit",
	"policy":        "kernelctl policy check FILE, then systemctl reload kernel-broker; or undo the edit",
	"reset-command": "install the program, or correct reset_command of broker.yaml and restart the broker",
}

func agentPort(e *examination) {
	if p, ok := need(e, e.Port); ok && p.Error != "" {
		e.wrong(p.Address, p.Error, "listen of broker.yaml and broker of agent.yaml; a firewall between")
	}
}

const tlsNone = "none"

func tlsOn(e *examination) {
	const remedy = "set tls.mode to own in broker.yaml and in each agent.yaml, and enrol the nodes; docs/ops/trust.md"
	known := false
	if f := e.BrokerFile.Value; f != nil && f.Error == "" {
		if known = true; f.TLS == tlsNone {
			e.warn(f.Path, "TLS is off: any client that reaches the port can name any node", remedy)
		}
	}
	if a := e.Agent.Value; a != nil && a.Error == "" {
		if known = true; a.TLS == tlsNone {
			e.warn(a.Path, "TLS is off: any host at the broker's address can boot this node", remedy)
		}
	}
	if f := e.Client.Value; f != nil && f.Error == "" && !f.Local {
		if known = true; !f.TLS {
			e.warn(f.Path, "TLS is off: the broker is not authenticated", "set ca in client.yaml; kernelctl authority show prints the file")
		}
	}
	if !known {
		e.skip("this host has no configuration that says so")
	}
}

// versions compares in exact words: versions of one release belong together, and an upgrade passes through others.
func versions(e *examination) {
	h, ok := need(e, e.Health)
	if !ok {
		return
	}
	if e.Version != h.Version {
		e.warn(e.Host, fmt.Sprintf("kernelctl is %s, the broker is %s", e.Version, h.Version), "install the same version on both hosts, the broker first")
	}
	nodes, ok := need(e, e.Nodes)
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
		for _, node := range others[v] {
			e.nodeWarn(node, fmt.Sprintf("the agent is %s, the broker is %s", v, h.Version), "install the broker's version on the nodes; docs/ops/upgrade.md")
		}
	}
	if unknown > 0 {
		e.skip("the broker or an agent does not tell the agent's version")
	}
}

// maxAhead is far above what time servers leave, and below what MUNGE and certificates accept.
const maxAhead = 5 * time.Second

func clocks(e *examination) {
	h, ok := need(e, e.Health)
	switch {
	case !ok:
	case h.Ahead == nil:
		e.skip("the broker is older and does not tell its time")
	case h.Ahead.Abs() > maxAhead:
		e.wrong(e.Host, fmt.Sprintf("the broker's clock is %v ahead of this host's: MUNGE and certificates are refused", h.Ahead.Round(time.Second)), "synchronise the clocks (chrony, systemd-timesyncd)")
	}
}

// late reports whether a certificate has passed its renewal: at two thirds of its time, and some time after for nodes
// that were off.
func (e *examination) late(c Certificate) bool {
	return e.Now.After(c.From.Add(c.Until.Sub(c.From) / 6 * 5))
}

// day is exact enough for a certificate, and the same for nodes that were enrolled together.
func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

func brokerCertificate(e *examination) {
	p, ok := need(e, e.Port)
	switch {
	case !ok:
	case p.Error != "":
		e.skip("the port for agents cannot be reached")
	case p.Certificate == nil:
		e.skip("the port for agents shows no certificate")
	default:
		c := *p.Certificate
		if e.Now.After(c.Until) {
			e.wrong(p.Address, "the broker's certificate ended on "+day(c.Until)+": no agent can connect", "restart the broker (tls.mode own), or renew the site's certificate")
		} else if e.late(c) {
			e.warn(p.Address, "the broker's certificate ends on "+day(c.Until), "restart the broker (tls.mode own), or renew the site's certificate")
		}
	}
	authorities, ok := need(e, e.Authorities)
	if !ok {
		return
	}
	if len(authorities) == 0 {
		e.skip("the broker tells of no authority")
		return
	}
	newest := slices.MaxFunc(authorities, func(a, b Certificate) int { return a.Until.Compare(b.Until) })
	if e.late(newest) {
		e.warn("authority", "the newest authority ends on "+day(newest.Until), "kernelctl authority rotate; login nodes without kernel-broker-client.timer need kernelctl setup client then")
	}
}

func nodeCertificates(e *examination) {
	nodes, ok := need(e, e.Certificates)
	if ok {
		for _, name := range slices.Sorted(maps.Keys(nodes)) {
			if !e.left(name) {
				e.certificate(name, nodes[name])
			}
		}
	}
	if a := e.Agent.Value; a != nil && a.TLS != tlsNone && a.Error == "" {
		if c, ok := need(e, a.Certificate); ok {
			e.certificate(a.Node, []Certificate{c})
		}
	}
}

func (e *examination) certificate(node string, good []Certificate) {
	const remedy = "kernelctl node token " + theNodes + ", and the token to /etc/kernel-broker/token of the node; its agent's log says why it did not renew"
	if len(good) == 0 {
		e.nodeWrong(node, "it has no certificate that is good, and no unused token: it cannot connect", remedy)
		return
	}
	newest := slices.MaxFunc(good, func(a, b Certificate) int { return a.Until.Compare(b.Until) })
	if e.Now.After(newest.Until) {
		e.nodeWrong(node, "its certificate ended on "+day(newest.Until), remedy)
	} else if e.late(newest) {
		e.nodeWarn(node, "its certificate ends on "+day(newest.Until)+" and was not renewed at two thirds of its time", remedy)
	}
}

// full is the share of a limit at which a store has too little room.
const full = 0.9

func (e *examination) capacity(c Capacity, remedy string) {
	if c.Limit > 0 && float64(c.Used) > full*float64(c.Limit) {
		e.warn(c.Name, fmt.Sprintf("%d of %d MiB are used", c.Used>>20, c.Limit>>20), remedy)
	}
}

func artifactRoom(e *examination) {
	if c, ok := need(e, e.Artifacts); ok {
		e.capacity(c, "retire versions that nobody uses, then kernelctl artifact gc; or artifacts.max_bytes of broker.yaml")
	}
}

func databaseRoom(e *examination) {
	if c, ok := need(e, e.Database); ok {
		e.capacity(c, "lower keep_jobs in broker.yaml; or use an etcd cluster (etcd.endpoints)")
	}
}

func diskRoom(e *examination) {
	disks, ok := need(e, e.Disks)
	if !ok {
		return
	}
	for _, d := range disks {
		least := d.Least
		if least == 0 {
			least = min(d.Size/20, 2<<30)
		}
		if d.Free < least {
			e.warn(d.Path, fmt.Sprintf("%d MiB are free, %d should be", d.Free>>20, least>>20), "make room on that disk, or mount another one there (another folder needs ReadWritePaths= in a drop-in of the unit, too)")
		}
	}
}
