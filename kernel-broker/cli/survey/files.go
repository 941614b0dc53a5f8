// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/doctor"
)

// Files returns the facts that Slurm's files on this host hold, as slurmctld will read them when it is restarted. conf is
// slurm.conf; empty for client.yaml's or Slurm's own.
func Files(ctx context.Context, o Options, conf string) (*doctor.Site, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("host name: %w", err)
	}
	host, _, _ = strings.Cut(host, ".")
	s := &surveyor{Options: o, controller: true, site: &doctor.Site{Host: host, Version: o.Version, Now: time.Now()}}
	s.clientFile()
	conf = cmp.Or(conf, s.client.SlurmConf, "/etc/slurm/slurm.conf")
	if conf, err = filepath.Abs(conf); err != nil {
		return nil, err
	}
	config, err := readSlurmFile(conf, 0)
	if err != nil {
		return nil, err
	}
	// A cluster without cgroup.conf has the defaults.
	if cgroup, err := readSlurmFile(filepath.Join(filepath.Dir(conf), doctor.CgroupFile), 0); err == nil {
		config["cgroupplugin"] = cgroup["cgroupplugin"]
	}
	config["slurm_conf"] = []string{conf}
	if len(config["proctracktype"]) == 0 {
		config["proctracktype"] = []string{"proctrack/cgroup"} // Slurm's default
	}
	if text, err := s.run(ctx, "--version"); err == nil {
		config["slurm_version"] = []string{doctor.InstalledRelease(text)}
	}
	s.site.Slurm = doctor.Known(config)
	s.programs()
	s.jobSubmit()
	s.plugin(ctx)
	return s.site, nil
}

// readSlurmFile reads a file with those that it includes. Where a key occurs twice, the values are those of a list.
func readSlurmFile(path string, depth int) (doctor.SlurmConfig, error) {
	text, err := readSome(path, maxText)
	if err != nil {
		return nil, err
	}
	config, includes := doctor.ParseSlurmFile(string(text))
	for _, include := range includes {
		if !filepath.IsAbs(include) {
			include = filepath.Join(filepath.Dir(path), include)
		}
		if depth >= maxIncludes {
			return nil, fmt.Errorf("%s: include %s cannot be followed", path, include)
		}
		more, err := readSlurmFile(include, depth+1)
		if err != nil {
			return nil, err
		}
		maps.Copy(config, more)
	}
	return config, nil
}
