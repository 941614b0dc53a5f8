// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kernelbroker/kernelbroker/kernel-broker/cli/survey"
	"github.com/kernelbroker/kernelbroker/kernel-broker/doctor"
)

func (a *app) setupCommand() *cobra.Command {
	conf := ""
	slurm := a.command("slurm", "Print the lines that Slurm's files on this host lack; changes nothing", cobra.NoArgs,
		func(ctx context.Context, _ []string) error { return a.setupSlurm(ctx, conf) })
	slurm.Flags().StringVar(&conf, "slurm-conf", "", "the `file` slurm.conf (default: slurm_conf of client.yaml, else /etc/slurm/slurm.conf)")
	fingerprint, snapshot := "", ""
	login := a.command("client", "Write the files that a login node needs, or bring them up to date", cobra.NoArgs,
		func(ctx context.Context, _ []string) error { return a.setupClient(ctx, fingerprint, snapshot) })
	login.Flags().StringVar(&fingerprint, "fingerprint", "", "the broker's authority, as kernelctl authority show prints it on the broker's host; the first time")
	login.Flags().StringVar(&snapshot, "snapshot", survey.DefaultSnapshot, "the plugin's `file` of profiles")
	return noun("setup", "What a site's own files need for Kernel Broker", slurm, login)
}

// lacking is what Slurm's files lack.
type lacking struct {
	SlurmConf string        `json:"slurm_conf"`
	Lines     []doctor.Line `json:"lines"`
	// Findings are what no line mends.
	Findings []doctor.Finding `json:"findings"`
}

func (a *app) setupSlurm(ctx context.Context, conf string) error {
	site, err := survey.Files(ctx, survey.Options{Version: a.Version, Config: a.config}, conf)
	if err != nil {
		return err
	}
	config := *site.Slurm.Value
	l := lacking{SlurmConf: config.Value("SLURM_CONF"), Lines: []doctor.Line{}, Findings: []doctor.Finding{}}
	lines, findings := doctor.Lines(doctor.OfFiles(doctor.Examine(site, nil)), config)
	l.Lines, l.Findings = append(l.Lines, lines...), append(l.Findings, findings...)
	paths := map[string]string{doctor.SlurmFile: l.SlurmConf, doctor.CgroupFile: filepath.Join(filepath.Dir(l.SlurmConf), doctor.CgroupFile), doctor.PlugstackFile: site.Plugstack.Value.Path}
	for i := range l.Lines {
		l.Lines[i].File = paths[l.Lines[i].File]
	}
	if err := a.showValue(l, func(p *page) { lackingPage(p, l) }); err != nil {
		return err
	}
	if len(l.Lines)+len(l.Findings) > 0 {
		return errFindings
	}
	return nil
}

func lackingPage(p *page, l lacking) {
	file := ""
	for _, line := range l.Lines {
		if line.File != file {
			file = line.File
			p.line("# %s", file)
		}
		if line.Replaces != "" {
			p.line("# in place of %s:", line.Replaces)
		}
		p.line("%s", line)
	}
	for _, f := range l.Findings {
		p.line("# %s: %s", f.Object, f.What)
		p.line("#   remedy: %s", f.Remedy)
	}
	if len(l.Lines)+len(l.Findings) == 0 {
		p.line("# %s and the files beside it have all that Kernel Broker needs", l.SlurmConf)
	}
	p.line("# nothing was changed; after the restart kernelctl doctor checks the whole site")
}
