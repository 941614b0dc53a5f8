// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
)

const (
	standbyPort   = 7441
	standbySocket = "/run/kernel-broker/standby.sock"
	// members is how many etcd has with Options.TwoBrokers.
	members = 3
)

// etcdAddress is where one of the two brokers reaches etcd, and etcdPort a member's for clients; the next one is for members.
func etcdAddress(broker int) string { return fmt.Sprintf("10.77.2.%d", broker+1) }

func etcdPort(member int) int { return 2379 + 2*member }

func etcdEndpoints(broker int) (all []string) {
	for i := range members {
		all = append(all, fmt.Sprintf("http://%s:%d", etcdAddress(broker), etcdPort(i)))
	}
	return all
}

// firstOfTwo and standbyConfig are what the two brokers have besides what one has. Both are on the front-end, and each has its
// own folder; the key that seals secrets in etcd is the same.
func firstOfTwo(o Options) map[string]any {
	if !o.TwoBrokers {
		return nil
	}
	return map[string]any{
		"etcd":           map[string]any{"endpoints": etcdEndpoints(0)},
		"peers":          map[string]any{"listen": frontAddress + ":7442", "address": frontAddress + ":7442"},
		"slurm":          map[string]any{"controllers": []string{frontAddress}},
		"store_key_file": "/var/lib/kernel-broker/store.key", "policy": "",
	}
}

func standbyConfig(o Options, m Mode) map[string]any {
	return MergeConfig(brokerConfig(o, m), map[string]any{
		"data_dir": "/var/lib/kernel-broker/standby",
		"socket":   standbySocket,
		"listen":   fmt.Sprintf("%s:%d", frontAddress, standbyPort),
		"etcd":     map[string]any{"endpoints": etcdEndpoints(1)},
		"peers":    map[string]any{"listen": frontAddress + ":7443", "address": frontAddress + ":7443"},
		"audit":    map[string]any{"dir": "/var/lib/kernel-broker/standby/audit"},
		"snapshot": "",
	})
}

// withStandby adds the second broker's address to that of the first, where there is one.
func withStandby(o Options, broker string) string {
	if !o.TwoBrokers {
		return broker
	}
	return fmt.Sprintf("%s,%s:%d", broker, frontAddress, standbyPort)
}

// Standby returns the handle of the second broker, which serves when the first has ended.
func (l *Lab) Standby() Daemon {
	return Daemon{
		lab: l, name: "standby", user: l.root(),
		argv:    confined(brokerUser(l.state.Options, l.state.Mode), l.state.Mode, "/usr/local/bin/kernel-broker", "--config", "/etc/kernel-broker/standby.yaml"),
		pidFile: "/run/kernel-broker/standby.pid", log: "kernel-broker/standby.log",
		ready: []string{"grep", "-q", "another broker acts", "/var/log/kernel-broker/standby.log"},
	}
}

// Member returns the handle of one of etcd's members, from 0.
func (l *Lab) Member(member int) Daemon {
	var all []string
	for i := range members {
		all = append(all, fmt.Sprintf("m%d=http://127.0.0.1:%d", i, etcdPort(i)+1))
	}
	name, peer := fmt.Sprintf("etcd%d", member), fmt.Sprintf("http://127.0.0.1:%d", etcdPort(member)+1)
	return Daemon{
		lab: l, name: name, user: brokerUser(l.state.Options, l.state.Mode),
		argv: []string{"/usr/bin/etcd", fmt.Sprintf("--name=m%d", member), "--data-dir=/var/lib/kernel-broker/" + name,
			fmt.Sprintf("--listen-client-urls=http://0.0.0.0:%d", etcdPort(member)), fmt.Sprintf("--advertise-client-urls=http://127.0.0.1:%d", etcdPort(member)),
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=" + strings.Join(all, ",")},
		pidFile: "/run/kernel-broker/" + name + ".pid", log: "kernel-broker/" + name + ".log",
		ready: []string{"grep", "-q", "ready to serve client requests", "/var/log/kernel-broker/" + name + ".log"},
	}
}

// startMembers starts etcd, whose members wait for each other.
func (l *Lab) startMembers(ctx context.Context) error {
	for broker := range 2 {
		if err := l.Connect(ctx, broker); err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	for i := range members {
		group.Go(func() error { return l.Member(i).Start(ctx) })
	}
	return group.Wait()
}

// CutOff takes from one of the two brokers the address by which it reaches etcd, and Connect gives it back. What is under way
// gets no answer meanwhile.
func (l *Lab) CutOff(ctx context.Context, broker int) error { return l.address(ctx, "del", broker) }

// Connect ends CutOff.
func (l *Lab) Connect(ctx context.Context, broker int) error { return l.address(ctx, "add", broker) }

func (l *Lab) address(ctx context.Context, verb string, broker int) error {
	_, err := l.must(ctx, l.root(), "ip", "addr", verb, etcdAddress(broker)+"/32", "dev", "lo")
	return err
}
