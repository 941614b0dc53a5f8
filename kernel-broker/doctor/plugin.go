// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
)

func jobSubmitScript(e *examination) {
	s, ok := need(e, e.JobSubmit)
	if !ok {
		return
	}
	load := fmt.Sprintf("load /usr/lib/kernel-broker/job_submit.lua in %s with dofile and call its functions; docs/ops/install.md, section 2", s.Path)
	switch {
	case s.Error != "":
		e.wrong(s.Path, "it cannot be read: "+s.Error+"; slurmctld refuses every job", "copy /usr/lib/kernel-broker/job_submit.lua there")
	case s.Ours:
	case s.Loads == "":
		e.wrong(s.Path, "it does not load Kernel Broker's: a job with --kernel-profile asks for no boot", load)
	case s.Missing:
		e.wrong(s.Path, "it loads "+s.Loads+", which is not there: slurmctld refuses every job", "install Kernel Broker on this host, or correct the path")
	case !s.Submit:
		e.wrong(s.Path, "it does not call kernel_broker.submit: a job with --kernel-profile asks for no boot", load)
	case !s.Modify:
		e.warn(s.Path, "it does not call kernel_broker.modify: a change of a job may share its nodes", load)
	}
}

func plugstack(e *examination) {
	p, ok := need(e, e.Plugstack)
	if !ok {
		return
	}
	remedy := "add the line \"" + plugstackLine() + "\" to " + p.Path
	if p.Error != "" {
		e.wrong(p.Path, "it cannot be read: "+p.Error, remedy)
		e.lacks(PlugstackFile, "", plugstackLine())
		return
	}
	ours := slices.DeleteFunc(slices.Clone(p.Lines), func(l PlugstackLine) bool { return !l.Ours() })
	if len(ours) == 0 {
		e.wrong(p.Path, "it does not name the plugin: sbatch here has no --kernel-profile, and a node has no gate", remedy)
		e.lacks(PlugstackFile, "", plugstackLine())
		return
	}
	var files []string
	for _, line := range ours {
		files = append(files, cmp.Or(line.File, p.Path))
		if line.Word != "required" {
			e.wrong(files[len(files)-1], "the plugin is "+line.Word+": Slurm ignores what it says, and so the gate", "write required in place of "+line.Word+" in "+files[len(files)-1])
		}
	}
	if len(ours) > 1 {
		e.warn(p.Path, fmt.Sprintf("it names the plugin %d times (in %s): Slurm loads each, warns of a conflicting option and runs the gate again for each", len(ours), strings.Join(slices.Compact(files), ", ")),
			"keep one line with "+pluginFile+", in plugstack.conf or in a file that it includes")
	}
}

func pluginVersion(e *examination) {
	p, ok := need(e, e.Plugin)
	if !ok {
		return
	}
	switch {
	case p.Error != "":
		e.wrong(p.Path, "it cannot be loaded: "+p.Error, "install the plugin of this Slurm's release on this host")
	case p.Installed == "":
		e.skip("scontrol --version does not say which Slurm this host has")
	case p.Slurm != p.Installed:
		e.wrong(p.Path, fmt.Sprintf("it is compiled for Slurm %s, and this host has %s: Slurm does not load it", p.Slurm, p.Installed), "install the plugin for Slurm "+p.Installed+", or compile it with this host's headers")
	}
}

func snapshot(e *examination) {
	s, ok := need(e, e.Snapshot)
	switch {
	case !ok:
	case s.Error != "":
		e.warn(s.Path, "it cannot be read: "+s.Error+"; a misspelt profile is only warned about here when the broker does not answer",
			"copy "+path.Base(s.Path)+" from the broker's host to "+s.Path)
	case s.Closed != "":
		e.warn(s.Path, s.Closed+": each submission with a profile asks the broker, and a misspelt one is only warned about here when the broker does not answer",
			"chmod a+r "+s.Path+"; namei -l "+s.Path+" shows a folder that is closed")
	case s.Stale:
		e.warn(s.Path, "it differs from the broker's: each submission with a new profile asks the broker", "copy it again from the broker's host, with a timer")
	}
}
