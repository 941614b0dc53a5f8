// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The product's files, their places in the lab, and the three configuration files. Change only this file when the
// product's files or configuration keys change.

// productFile is one file of the product.
type productFile struct {
	name   string // file name in the build folder
	target string // path on the front-end or node
}

// frontFiles go to the front-end, below the lab's product folder. A name may appear twice: the hooks are one program
// under several names.
var frontFiles = []productFile{
	{"kernel-broker", "/usr/local/bin/kernel-broker"},
	{"kernelctl", kernelctlPath},
	{"kernel-factory", "/usr/local/bin/kernel-factory"}, // steps of builds that are jobs
	{"kblab", "/usr/local/bin/kblab"},                   // the broker resets nodes by it
	{"kernel-broker-hook", libexec + "/prolog-slurmctld"},
	{"kernel-broker-hook", libexec + "/epilog-slurmctld"},
	{"kernel-broker-hook", libexec + "/reboot"},
	{"kernel_profile.so", pluginDir + "/kernel_profile.so"},
	{"job_submit.lua", "/etc/slurm/job_submit.lua"},
}

// nodeFiles go into the nodes' disk image.
var nodeFiles = []productFile{
	{"kernel-broker-agent", "/usr/sbin/kernel-broker-agent"},
	{"kernel-broker-node-hook", libexec + "/epilog"},
	{"kernel_profile.so", pluginDir + "/kernel_profile.so"},
}

// productPlaces are the folders of built files; the first match counts.
func productPlaces(o Options) []string {
	return []string{
		filepath.Join(o.Product, "bin"),
		o.Product,
		filepath.Join(o.Product, "slurm-plugin"),
		filepath.Join(o.Product, "plugin"),
		filepath.Join(o.Repo, "slurm-plugin"), // job_submit.lua needs no build
	}
}

// findProduct resolves the files' names to paths; plugin is the file of that name, if it is not the product's own.
func findProduct(o Options, plugin string, files []productFile) (map[string]string, error) {
	found := map[string]string{}
	var missing []string
	for _, f := range files {
		if plugin != "" && f.name == filepath.Base(plugin) {
			found[f.target] = plugin
			continue
		}
		path := ""
		for _, dir := range productPlaces(o) {
			p := filepath.Join(dir, f.name)
			if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() {
				path = p
				break
			}
		}
		if path == "" {
			missing = append(missing, f.name)
			continue
		}
		found[f.target] = path
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("product in %q: not built: %s (make build; or a lab without the product)",
			o.Product, strings.Join(missing, ", "))
	}
	return found, nil
}

func brokerConfig(o Options, m Mode) map[string]any {
	etcd := map[string]any{}
	if o.ExternalEtcd {
		etcd["endpoints"] = []string{etcdEndpoint}
	}
	return MergeConfig(MergeConfig(MergeConfig(map[string]any{
		"etcd":    etcd,
		"cluster": "lab",
		"socket":  brokerSocket,
		"listen":  fmt.Sprintf("%s:%d", frontAddress, brokerPort),
		"slurm":   map[string]any{"user": service(m, "slurm")},
		// The lab's replacement of a management controller.
		"reset_command": []string{"/usr/local/bin/kblab", "bmc", "reset", "{node}"},
	}, tlsConfig(o)), firstOfTwo(o)), o.Broker)
}

func clientConfig(o Options) map[string]any {
	config := map[string]any{
		"broker":   withStandby(o, "unix://"+brokerSocket),
		"ca":       "/var/lib/kernel-broker/ca.pem",
		"log_file": "/var/log/kernel-broker/hook.log",
	}
	if o.TwoBrokers {
		config["cluster"] = "lab" // credentials name it, and only here clients use the network
	}
	return MergeConfig(config, o.Client)
}

func agentConfig(o Options, i int) map[string]any {
	return MergeConfig(MergeConfig(map[string]any{
		"node":   nodeName(i),
		"broker": withStandby(o, fmt.Sprintf("%s:%d", frontAddress, brokerPort)),
		"cache":  map[string]any{"max_bytes": 256 << 20},
	}, tlsConfig(o)), o.Agent)
}

const kernelctlPath = "/usr/local/bin/kernelctl"

const brokerSocket = "/run/kernel-broker/broker.sock"

// MergeConfig lays over on base: maps are merged, nil deletes, the rest replaces.
func MergeConfig(base, over map[string]any) map[string]any {
	for k, v := range over {
		if v == nil {
			delete(base, k)
			continue
		}
		inner, ok := base[k].(map[string]any)
		outer, ok2 := v.(map[string]any)
		if ok && ok2 {
			base[k] = MergeConfig(maps.Clone(inner), outer) // others may have the inner one, too
			continue
		}
		base[k] = v
	}
	return base
}

// ConfigFile renders a configuration file.
func ConfigFile(config map[string]any) ([]byte, error) {
	// Through JSON, so that any struct or typed slice of a caller becomes plain maps and lists.
	raw, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	var plain any
	if err := yaml.Unmarshal(raw, &plain); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	text, err := yaml.Marshal(plain)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return text, nil
}
