// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// slurmctld is one as the product meets it: nodes, jobs that have them, and what the commands of broker and hooks print
// and change. Its output has the form of 24.11's.
type slurmctld struct {
	user, uid string
	// reboot runs RebootProgram for nodes.
	reboot func(nodes []string)

	mu    sync.Mutex
	nodes map[string]*slurmNode
	names []string
	jobs  map[uint32]*slurmJob
	// out are the nodes that a command took out of service, with its words; unknown are commands that no part here answers.
	out     map[string]string
	unknown map[string]bool
}

type slurmNode struct {
	name string
	job  *slurmJob
	// poweringUp waits for the boot of a job's start, requested is one that was asked for, issued one that has begun.
	poweringUp, requested, issued bool
	asap, drained, down           bool
	reason, by                    string
	available, active             string // features
	request, registered           time.Time
}

type slurmJob struct {
	id             uint32
	state, comment string
	nodes          []string
}

// newSlurmctld has nodes. Its user is named as root(0).
func newSlurmctld(owner string, names []string) *slurmctld {
	user, uid, _ := strings.Cut(strings.TrimSuffix(owner, ")"), "(")
	s := &slurmctld{user: user, uid: uid, reboot: func([]string) {}, nodes: map[string]*slurmNode{}, names: names,
		jobs: map[uint32]*slurmJob{}, out: map[string]string{}, unknown: map[string]bool{}}
	for _, name := range names {
		s.nodes[name] = &slurmNode{name: name}
	}
	return s
}

// allocate gives a job its nodes, which Slurm then waits for.
func (s *slurmctld) allocate(id uint32, names []string, comment string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs[id] = &slurmJob{id: id, state: "CONFIGURING", nodes: names, comment: comment}
	for _, name := range names {
		n := s.nodes[name]
		n.job, n.poweringUp, n.request = s.jobs[id], true, time.Now()
	}
}

// begin starts a job whose prolog has ended well, if it still has its nodes.
func (s *slurmctld) begin(id uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.jobs[id]
	if j != nil {
		j.state = "RUNNING"
	}
	return j != nil
}

// end takes a job off its nodes, if it has not left before.
func (s *slurmctld) end(id uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.leave(id)
}

var errNoJob = errors.New("slurm_load_jobs error: invalid job id specified")

// leave takes a job off its nodes. One that was requeued is not started again: the benchmark counts it as lost.
func (s *slurmctld) leave(id uint32) (string, error) {
	j := s.jobs[id]
	if j == nil {
		return "", errNoJob
	}
	delete(s.jobs, id)
	for _, name := range j.nodes {
		s.nodes[name].job = nil
	}
	s.issue(j.nodes)
	return "", nil
}

// issue begins the boots that were asked for of nodes that are free.
func (s *slurmctld) issue(names []string) {
	var due []string
	for _, name := range names {
		if n := s.nodes[name]; n != nil && n.requested && n.job == nil {
			n.requested, n.issued, n.down, n.poweringUp, n.request = false, true, true, false, time.Now()
			n.because(n.reason+" : reboot issued", s.user)
			due = append(due, name)
		}
	}
	if len(due) > 0 {
		go s.reboot(due)
	}
}

// register is slurmd's: a claim says that the node has booted. slurmctld counts in whole seconds, and passes over a boot that
// is not younger than its request.
func (s *slurmctld) register(name string, claim bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[name]
	n.registered = time.Now()
	young := claim && n.registered.Truncate(time.Second).After(n.request.Truncate(time.Second))
	switch {
	case n.poweringUp && young:
		n.poweringUp = false
	case n.issued && young:
		n.issued, n.down, n.asap = false, false, false
		n.because("", "")
	}
}

// idle reports whether nodes are in service and nothing is waited for.
func (s *slurmctld) idle(names []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(names, func(name string) bool { return s.nodes[name].state() != "IDLE" })
}

// drained counts the nodes that were taken out of service since it was asked last, with one of them.
func (s *slurmctld) drained() (count int, example string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	count = len(s.out)
	for name, words := range s.out {
		example = name + ": " + words
	}
	clear(s.out)
	return count, example
}

func (n *slurmNode) because(reason, user string) {
	if n.reason, n.by = reason, ""; reason != "" {
		n.by = user + "@" + clock(time.Now())
	}
}

func clock(t time.Time) string { return t.Format("2006-01-02T15:04:05") }

// state of a node with its flags, as scontrol prints it.
func (n *slurmNode) state() string {
	state := "IDLE"
	switch {
	case n.down || n.issued:
		state = "DOWN"
	case n.job != nil:
		state = "ALLOCATED"
	}
	for i, set := range []bool{n.drained || n.asap, n.poweringUp, n.requested, n.issued} {
		if set {
			state += [...]string{"+DRAIN", "+POWERING_UP", "+REBOOT_REQUESTED", "+REBOOT_ISSUED"}[i]
		}
	}
	return state
}

// line is the node's in scontrol --oneliner show node.
func (n *slurmNode) line(out []byte) []byte {
	cpus, text := 0, ""
	if n.job != nil {
		cpus = 2
	}
	if n.reason != "" {
		text = "Reason=" + n.reason + " [" + n.by + "]"
	}
	at := clock(n.registered)
	return fmt.Appendf(out, "NodeName=%s Arch=x86_64 CoresPerSocket=1  CPUAlloc=%d CPUEfctv=2 CPUTot=2 CPULoad=0.10 AvailableFeatures=%s "+
		"ActiveFeatures=%s Gres=(null) NodeAddr=%s NodeHostName=%s Port=6818 Version=24.11.5 "+
		"OS=Linux 6.1.0-56-amd64 #1 SMP PREEMPT_DYNAMIC Debian 6.1.192-1 (2026-11-01)  RealMemory=1024 AllocMem=0 FreeMem=16000 Sockets=2 Boards=1 "+
		"State=%s ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=main  BootTime=%s SlurmdStartTime=%s LastBusyTime=%s "+
		"ResumeAfterTime=None CfgTRES=cpu=2,mem=1G,billing=2 AllocTRES= CurrentWatts=0 AveWatts=0  %s\n",
		n.name, cpus, n.available, n.active, n.name, n.name, n.state(), at, at, at, text)
}

// config is what of scontrol show config is asked for.
const config = `AccountingStorageEnforce = none
BOOT_TIME               = 2026-11-29T11:00:00
PrivateData             = none
PrEpPlugins             = prep/script
Prolog                  = (null)
ResumeTimeout           = 600 sec
SlurmUser               = %s(%s)
`

// run answers a command; an error is a refusal.
func (s *slurmctld) run(program string, words []string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	words = slices.DeleteFunc(words, func(w string) bool {
		return slices.Contains([]string{"--oneliner", "--all", "--array", "--noheader"}, w)
	})
	values := map[string]string{}
	for _, w := range words {
		key, value, _ := strings.Cut(strings.TrimLeft(w, "-"), "=")
		values[strings.ToLower(key)] = value
	}
	verb, last := strings.Join(words[:min(2, len(words))], " "), words[len(words)-1]
	switch {
	case program == "squeue" && values["format"] != "":
		return s.squeue(values["format"], values["jobs"], values["states"])
	case verb == "show node" && len(words) == 2:
		return s.show(s.names)
	case verb == "show node":
		return s.show(strings.Split(last, ","))
	case verb == "show config":
		return fmt.Sprintf(config, s.user, s.uid), nil
	case verb == "show partition":
		return "PartitionName=main Default=YES State=UP PriorityTier=1\n", nil
	case verb == "show reservation":
		return "No reservations in the system\n", nil
	case verb == "reboot ASAP":
		defer s.issue(strings.Split(last, ","))
		return s.each(last, func(n *slurmNode) {
			n.requested, n.asap = true, true
			n.because(cmp.Or(n.reason, "Reboot ASAP"), s.user)
		})
	case words[0] == "cancel_reboot":
		return s.each(last, func(n *slurmNode) {
			n.requested, n.asap = false, false
			n.because("", "")
		})
	case words[0] == "update" && values["nodename"] != "":
		return s.each(values["nodename"], func(n *slurmNode) {
			s.update(n, values["state"], values["reason"])
			if features, set := values["availablefeatures"]; set {
				n.available, n.active = features, values["activefeatures"]
			}
		})
	case words[0] == "update":
		j := s.jobs[number(values["jobid"])]
		if j == nil {
			return "", errNoJob
		}
		j.comment = cmp.Or(values["admincomment"], j.comment)
		return "", nil
	case strings.HasPrefix(words[0], "requeue"), program == "scancel":
		return s.leave(number(last))
	}
	s.unknown[program+" "+verb] = true
	return "", fmt.Errorf("invalid keyword: %s", strings.Join(words, " "))
}

// number is 0 for what is none.
func number(text string) uint32 {
	n, _ := strconv.ParseUint(text, 10, 32)
	return uint32(n)
}

// expand lists the nodes of a list such as n00001,n00002 or n[00001-00003,00007].
func (s *slurmctld) expand(list string) (names []string) {
	ranges, bracket := strings.CutPrefix(list, "n[")
	for item := range strings.SplitSeq(strings.TrimSuffix(ranges, "]"), ",") {
		first, last, _ := strings.Cut(item, "-")
		if !bracket {
			names = append(names, item)
			continue
		}
		for i := number(first); i <= number(cmp.Or(last, first)); i++ {
			names = append(names, fmt.Sprintf("n%0*d", len(first), i))
		}
	}
	return names
}

// each changes nodes of a list.
func (s *slurmctld) each(list string, change func(*slurmNode)) (string, error) {
	for _, name := range s.expand(list) {
		n := s.nodes[name]
		if n == nil {
			return "", fmt.Errorf("invalid node name specified: %s", name)
		}
		change(n)
	}
	return "", nil
}

func (s *slurmctld) show(names []string) (string, error) {
	out := make([]byte, 0, len(names)<<10)
	for _, name := range names {
		if n := s.nodes[name]; n != nil {
			out = n.line(out)
		}
	}
	return string(out), nil
}

func (s *slurmctld) update(n *slurmNode, state, reason string) {
	switch state {
	case kb.StateDrain, kb.StateDown:
		s.out[n.name] = "state=" + state + " reason=" + reason
		n.drained, n.down = n.drained || state == kb.StateDrain, n.down || state == kb.StateDown
		if n.job != nil && n.poweringUp {
			_, _ = s.leave(n.job.id) // slurmctld requeues the job of a node that is not up yet
		}
	case "resume":
		n.drained, n.asap, n.requested, n.issued, n.down = false, false, false, false, false
		n.because("", "")
	case "future":
		n.poweringUp, n.issued, n.down = false, false, false
	}
	if reason != "" {
		n.because(reason, s.user)
	}
}

// squeue prints the columns of --Format: a name, a width of which 0 is all, and what follows.
func (s *slurmctld) squeue(format, list, states string) (string, error) {
	ids := slices.Sorted(maps.Keys(s.jobs))
	if list != "" {
		ids = slices.DeleteFunc(ids, func(id uint32) bool { return !slices.Contains(strings.Split(list, ","), fmt.Sprint(id)) })
		if len(ids) == 0 {
			return "", errNoJob
		}
	}
	if states == "NODE_FAIL" {
		ids = nil
	}
	var out strings.Builder
	for _, id := range ids {
		values := s.columns(s.jobs[id])
		for column := range strings.SplitSeq(format, ",") {
			name, width, _ := strings.Cut(column, ":")
			value, digits := cmp.Or(values[name], "N/A"), strings.TrimRight(width, "|")
			if n := int(number(digits)); n > 0 {
				value = fmt.Sprintf("%-*.*s", n, n, value)
			}
			out.WriteString(value + width[len(digits):])
		}
		out.WriteByte('\n')
	}
	return out.String(), nil
}

func (s *slurmctld) columns(j *slurmJob) map[string]string {
	return map[string]string{
		"JobID": fmt.Sprint(j.id), "ArrayJobID": fmt.Sprint(j.id), "RestartCnt": "0", "State": j.state, "UserID": s.uid, "UserName": s.user,
		"NumNodes": fmt.Sprint(len(j.nodes)), "NodeList": hostlist(j.nodes), "PriorityLong": "1", "Reboot": "1", "Requeue": "1",
		"Partition": "main", "Reason": "None", "Reservation": "(null)", "admin_comment": cmp.Or(j.comment, "(null)"),
	}
}

// hostlist names nodes that follow each other as Slurm does.
func hostlist(names []string) string {
	first, last := names[0], names[len(names)-1]
	if first == last {
		return first
	}
	return fmt.Sprintf("%s[%s-%s]", first[:1], first[1:], last[1:])
}
