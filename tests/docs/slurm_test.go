// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Options of Slurm 22.05's programs, as far as the documentation uses them. A test below compares them with the real
// programs.
var (
	slurmOptions = map[string][]string{
		"sbatch": {"--wait", "-N", "--nodes", "--exclusive", "--account", "--partition", "-p", "--no-requeue", "--requeue", "--hold", "--dependency", "--array", "--oversubscribe",
			"--constraint", "-C", "--reboot", "-w", "--nodelist", "--wrap", "--parsable", "--export", "--reservation", "--core-spec", "--no-kill", "--time", "--ntasks-per-node", "-n", "--begin", "--test-only"},
		"srun":     {"-N", "--nodes", "--ntasks-per-node", "-n", "-w", "-p", "--partition", "--exclusive", "--jobid", "--overlap", "--het-group", "--mpi", "--pty", "-l"},
		"salloc":   {"-N", "--nodes", "-n", "-w", "-p", "--partition", "--exclusive", "--dependency", "--no-shell"},
		"squeue":   {"--me", "-O", "--Format", "-o", "--format", "--start", "-j", "--jobs", "-h", "--noheader", "-t", "--states", "-u", "--user", "-w", "--array", "--all"},
		"sinfo":    {"-R", "-N", "-l", "-o", "--format", "-n", "-h"},
		"scontrol": {"-o", "--oneliner", "-a", "--all", "-d"},
		"scancel":  {"-u", "-n", "--name", "-s", "--signal", "-b", "--batch"},
		"sacct":    {"-j", "--jobs", "-o", "--format", "-X", "-n", "-P", "-S"},
		"sacctmgr": {"-i", "--immediate", "-n", "-P", "--noheader", "--parsable2"},
	}
	// ownOptions are those of our plugin.
	ownOptions = []string{"--kernel-profile", "--kernel-profiling"}

	squeueFields = []string{"jobid", "arrayjobid", "arraytaskid", "state", "admin_comment", "reason", "reasonlist", "nodelist", "username", "userid", "name", "partition",
		"numnodes", "restartcnt", "reboot", "prioritylong", "hetjobid", "hetjoboffset", "account"}
	scontrolVerbs = map[string][]string{
		"show": {"job", "node", "nodes", "config", "partition", "reservation", "reservations", "assoc_mgr", "hostnames", "step", "licenses"}, "update": nil, "release": nil, "hold": nil, "notify": nil,
		"uhold": nil, "requeue": nil, "requeuehold": nil, "reboot": nil, "cancel_reboot": nil, "reconfigure": nil, "suspend": nil, "resume": nil,
		"create": nil, "delete": nil, "ping": nil, "takeover": nil, "shutdown": nil, "top": nil, "write": {"config", "batch_script"}, "setdebug": nil, "token": nil,
	}
	sacctmgrVerbs = []string{"add", "modify", "show", "delete", "list"}
)

var slurmPrograms = []string{"sbatch", "srun", "salloc", "squeue", "sinfo", "scontrol", "scancel", "sacct", "sacctmgr"}

// Every command of Slurm's is valid.
func TestSlurm(t *testing.T) {
	all := found(t, slurmPrograms...)
	if len(all) < 40 {
		t.Fatalf("only %d commands were found", len(all))
	}
	for _, c := range all {
		for _, wrong := range slurmWrong(c) {
			t.Errorf("%s: %s", c, wrong)
		}
	}
}

func slurmWrong(c command) (wrong []string) {
	program := c.words[0]
	known := slurmOptions[program]
	if program == "sbatch" || program == "srun" || program == "salloc" {
		known = slices.Concat(known, ownOptions)
	}
	var verbs []string
	for i, w := range c.words[1:] {
		name, value, is := option(w)
		if !is {
			if w == ":" {
				continue // between the components of a heterogeneous job
			}
			if verbs = append(verbs, w); program == "srun" || program == "sbatch" || program == "salloc" {
				break // the rest is a program's of the user's
			}
			continue
		}
		if short := regexp.MustCompile(`^(-[A-Za-z])(.+)$`).FindStringSubmatch(name); short != nil && slices.Contains(known, short[1]) {
			name, value = short[1], short[2]
		}
		if !slices.Contains(known, name) {
			wrong = append(wrong, "it has no option "+name+", or one that slurmOptions does not know yet")
		}
		if value == "" && i+2 < len(c.words) {
			value = c.words[i+2]
		}
		if program == "squeue" && (name == "-O" || name == "--Format") {
			for field := range strings.SplitSeq(value, ",") {
				if field, _, _ = strings.Cut(field, ":"); !slices.Contains(squeueFields, strings.ToLower(field)) {
					wrong = append(wrong, "it has no field "+field+", or one that squeueFields does not know yet")
				}
			}
		}
	}
	switch program {
	case "scontrol":
		wrong = append(wrong, scontrolWrong(verbs)...)
	case "sacctmgr":
		if len(verbs) > 0 && !slices.Contains(sacctmgrVerbs, verbs[0]) {
			wrong = append(wrong, "it has no command "+verbs[0])
		}
	}
	return wrong
}

func scontrolWrong(verbs []string) []string {
	if len(verbs) == 0 || strings.ContainsAny(verbs[0], "=") || placeholder.MatchString(verbs[0]) {
		return nil
	}
	things, known := scontrolVerbs[verbs[0]]
	switch {
	case !known:
		return []string{"it has no command " + verbs[0] + ", or one that scontrolVerbs does not know yet"}
	case things != nil && len(verbs) > 1 && !slices.Contains(things, strings.ToLower(strings.Split(verbs[1], "=")[0])):
		return []string{"it shows no " + verbs[1] + ", or one that scontrolVerbs does not know yet"}
	}
	return nil
}

func TestSlurmCheckFindsErrors(t *testing.T) {
	for line, words := range map[string]string{
		"squeue --me -O jobid,admincomment:80": "no field admincomment",
		"sbatch --kernel-profle=x job.sh":      "no option --kernel-profle",
		"scontrol shwo job 1":                  "no command shwo",
		"scontrol show jbo 1":                  "shows no jbo",
		"squeue --kernel-profile=x":            "no option --kernel-profile",
	} {
		got := strings.Join(slurmWrong(commands("here", line, false)[0]), "; ")
		if !strings.Contains(got, words) {
			t.Errorf("%s: %q, want %q", line, got, words)
		}
	}
	for _, line := range []string{"srun -N2 uname -r", "sbatch -N2 --kernel-profile=mitgcm job.sh --kernel", "squeue --me -O jobid,admin_comment:80"} {
		if wrong := slurmWrong(commands("here", line, false)[0]); wrong != nil {
			t.Errorf("%s: %v", line, wrong)
		}
	}
}

// The tables match the installed programs.
func TestTablesMatchSlurm(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "slurm.conf")
	if err := os.WriteFile(conf, []byte("ClusterName=x\nSlurmctldHost=localhost\nSlurmctldPort=9\nMessageTimeout=1\nNodeName=n1\nPartitionName=p Nodes=n1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for program, options := range slurmOptions {
		path, err := exec.LookPath(program)
		if err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatal(err)
			}
			t.Skipf("Debian's package slurm-client is needed: %v", err)
		}
		for _, o := range append(slices.Clone(options), "--no-such-one") {
			// Help does not list all options. An unknown option is reported first, whatever follows; there is no
			// slurmctld to act.
			cmd := exec.CommandContext(t.Context(), path, o, "--no-such-option")
			cmd.Env = append(os.Environ(), "SLURM_CONF="+conf)
			out, _ := cmd.CombinedOutput()
			if regexp.MustCompile(`(unrecognized|invalid|unknown) option (-- )?'?`+regexp.QuoteMeta(strings.TrimLeft(o, "-"))+`'|(unrecognized|invalid) option '?`+regexp.QuoteMeta(o)+`'`).Match(out) != (o == "--no-such-one") {
				t.Errorf("%s %s: %.200s", program, o, out)
			}
		}
	}
	squeue, err := os.ReadFile(must(exec.LookPath("squeue")))
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range squeueFields {
		// Names are stored in the program with their zero byte; one may be the end of another.
		if !regexp.MustCompile(`(?i)` + field + `\x00`).Match(squeue) {
			t.Errorf("squeue knows no field %s", field)
		}
	}
	scontrol := must(exec.LookPath("scontrol"))
	for verb := range scontrolVerbs {
		if verb == "shutdown" || verb == "takeover" {
			continue // no test may send a request to whatever listens
		}
		cmd := exec.Command(scontrol, verb)
		cmd.Env = append(os.Environ(), "SLURM_CONF="+conf)
		if out, _ := cmd.CombinedOutput(); strings.Contains(string(out), "invalid keyword") {
			t.Errorf("scontrol %s: %s", verb, out)
		}
	}
}

func must(path string, err error) string {
	if err != nil {
		return "/nonexistent"
	}
	return path
}
