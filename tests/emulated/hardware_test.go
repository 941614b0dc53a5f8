// SPDX-License-Identifier: Apache-2.0

//go:build emulated

package emulated

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// ledger is what kernelctl hardware list prints.
type ledger struct {
	Rows []struct {
		Hardware         struct{ Board, Firmware string }
		Profile, Way     string
		Tries, Successes uint64
		FailedCause      string `json:"failed_cause"`
		Phases           []struct {
			Phase       string
			Count       int
			Median, P95 string
		}
	}
	Rules []struct{ Name, Reason string }
}

// counted is how often a way was tried with success on the cluster's hardware.
func (l ledger) counted(way string) string {
	for _, r := range l.Rows {
		if r.Way == way && r.Profile == "mitgcm" && r.Hardware.Board == "Emulated-Node" && r.Hardware.Firmware == "1.0" {
			return fmt.Sprintf("%d of %d", r.Successes, r.Tries)
		}
	}
	return "none"
}

func (s *Trial) ledger() (l ledger) {
	s.T.Helper()
	s.Kernelctl(&l, "hardware", "list")
	return l
}

// counts waits until the ledger has what the ways say.
func (s *Trial) counts(want map[string]string) {
	s.T.Helper()
	s.Wait(Limit, fmt.Sprintf("the ledger to have %v", want), func() bool {
		l := s.ledger()
		for way, times := range want {
			if l.counted(way) != times {
				return false
			}
		}
		return true
	}, func() string { return fmt.Sprintf("%+v", s.ledger()) })
}

// Each boot of a job is in the ledger with the phases of its time.
func TestHardwareLedger(t *testing.T) {
	t.Parallel()
	s := Start(t, nil)
	s.WaitJob(s.Sbatch("alice", "0", "-N1", "--nodelist=n1", "--kernel-profile=mitgcm"), "COMPLETED")
	s.Settled(Limit, "n1")
	s.counts(map[string]string{"switch": "1 of 1", "return": "1 of 1", "reset": "none"})
	// What is counted is in the store.
	s.OK(s.Broker().Restart(s.Ctx, syscall.SIGKILL))
	s.counts(map[string]string{"switch": "1 of 1", "return": "1 of 1"})
	for _, r := range s.ledger().Rows {
		var phases []string
		for _, p := range r.Phases {
			phases = append(phases, p.Phase)
		}
		if !slices.Equal(phases, []string{"load", "stop", "shutdown", "start", "total"}) {
			t.Errorf("%s has the phases %v", r.Way, phases)
		}
	}
}

// A rule holds the job that would need a kexec, with its reason, and the job runs when the rule is gone.
func TestNeverKexec(t *testing.T) {
	t.Parallel()
	s := Start(t, nil)
	if r := s.Try("alice", "kernelctl", "hardware", "rule", "set", "mine", "--board", "*"); r.Exit != 3 || !strings.Contains(r.Stderr, "not allowed") && !strings.Contains(r.Stderr, "denied") {
		t.Errorf("a user sets a rule: exit %d, %s", r.Exit, r.Stderr)
	}
	s.Must("root", "kernelctl", "hardware", "rule", "set", "hangs", "--board", "Emulated*", "--kexec", "never", "--reason", "hangs in its shutdown")
	id := s.Sbatch("alice", "0", "-N1", "--nodelist=n1", "--kernel-profile=mitgcm")
	var job map[string]string
	s.Wait(Limit, "the job to be held", func() bool {
		job = s.Job(id)
		return job["JobState"] == "PENDING" && job["Priority"] == "0"
	}, func() string { return s.State(id) })
	for _, part := range []string{"hangs in its shutdown", "n1", "Emulated-Node", "ExcNodeList"} {
		if !strings.Contains(job["AdminComment"], part) {
			t.Errorf("the job's comment has no %q: %s", part, job["AdminComment"])
		}
	}
	s.Wait(Limit, "n1 to be free", func() bool { return s.IsHome("n1") }, func() string { return s.NodeLine("n1") })
	s.WaitJob(s.Sbatch("bob", "0", "-N1", "--nodelist=n1"), "COMPLETED")
	if boots := s.BootsOf("n1"); slices.Contains(boots, "kexec") {
		t.Errorf("n1 booted by %v", boots)
	}
	s.Must("root", "kernelctl", "hardware", "rule", "remove", "hangs")
	s.Must("alice", "scontrol", "release", id)
	s.Hurry(id)
	s.WaitJob(id, "COMPLETED")
	s.RanOn("alice", id, "mitgcm", 1)
	s.Settled(Limit, "n1")
}

// The next return is a reboot, once.
func TestSkipKexecOnce(t *testing.T) {
	t.Parallel()
	s := Start(t, nil)
	s.Must("root", "kernelctl", "hardware", "rule", "set", "skip-n1", "--node", "n1", "--once")
	for round, want := range []string{"reboot", "kexec"} {
		id := s.Sbatch("alice", "0", "-N1", "--nodelist=n1", "--kernel-profile=mitgcm")
		s.WaitJob(id, "COMPLETED")
		s.RanOn("alice", id, "mitgcm", 1)
		s.Settled(Limit, "n1")
		if boots := s.BootsOf("n1"); len(boots) != 3+2*round || boots[len(boots)-1] != want {
			t.Errorf("round %d: n1 booted by %v", round, boots)
		}
		if rules := s.ledger().Rules; len(rules) > 0 {
			t.Errorf("round %d: rules %v", round, rules)
		}
	}
	s.counts(map[string]string{"switch": "2 of 2", "return": "1 of 1", "reboot": "1 of 1"})
}

// A return that kexec cannot make climbs the ladder: the node's own reboot, then the reset from outside, then the drain.
func TestReturnLadder(t *testing.T) {
	t.Parallel()
	bmc := []string{"/emulated/bmc", "reset", "{node}"}
	for name, c := range map[string]struct {
		reboot  string // the agent's command
		reset   []string
		boots   []string
		ledger  map[string]string
		drained bool
	}{
		"reboot":                {"/emulated/reboot", bmc, []string{"power on", "kexec", "reboot"}, map[string]string{"reboot": "1 of 1", "reset": "none"}, false},
		"reboot without reset":  {"/emulated/reboot", nil, []string{"power on", "kexec", "reboot"}, map[string]string{"reboot": "1 of 1"}, false},
		"reboot hangs":          {"/bin/true", bmc, []string{"power on", "kexec", "reset"}, map[string]string{"reboot": "0 of 1", "reset": "1 of 1"}, false},
		"reboot fails":          {"/bin/false", bmc, []string{"power on", "kexec", "reset"}, map[string]string{"reboot": "0 of 1", "reset": "1 of 1"}, false},
		"reset does not help":   {"/bin/false", []string{"/bin/true", "{node}"}, []string{"power on", "kexec"}, map[string]string{"reboot": "0 of 1", "reset": "0 of 1"}, true},
		"no reset to fall back": {"/bin/false", nil, []string{"power on", "kexec"}, map[string]string{"reboot": "0 of 1", "reset": "none"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Start(t, func(o *Options) {
				o.Nodes = 1
				o.Broker = map[string]any{"switch": map[string]any{"stock_attempts": 1, "reboot_timeout": "3s", "reset_grace": "4s"}}
				if c.reset != nil {
					o.Broker["reset_command"] = c.reset
				}
				o.Agent = map[string]any{"reboot": map[string]any{"command": []string{c.reboot}}}
				o.ResumeTimeout = 3 * time.Minute
			})
			id := s.Sbatch("alice", "held", "-N1", "--kernel-profile=mitgcm")
			s.WaitJob(id, "RUNNING")
			s.Wait(Limit, "the job's step", func() bool { return len(s.Records("alice", id)) == 1 })
			s.OK(s.Node("n1").FailNextLoad(StockName))
			s.LetGo("alice", id)
			s.WaitJob(id, "COMPLETED")
			if c.drained {
				s.Wait(Limit, "n1 to be drained", func() bool { return s.drained("n1", "kernel-broker:") }, func() string { return s.NodeLine("n1") })
			} else {
				s.Settled(Limit, "n1")
			}
			if boots := s.BootsOf("n1"); !slices.Equal(boots, c.boots) {
				t.Errorf("n1 booted by %v", boots)
			}
			s.counts(c.ledger)
		})
	}
}

// A node whose return by kexec hangs is silent, and reset at once.
func TestSilentReturnIsReset(t *testing.T) {
	t.Parallel()
	s := Start(t, func(o *Options) {
		o.Broker = map[string]any{"switch": map[string]any{"stock_timeout": "4s"}, "reset_command": []string{"/emulated/bmc", "reset", "{node}"}}
		o.ResumeTimeout = 3 * time.Minute
	})
	id := s.Sbatch("alice", "held", "-N1", "--nodelist=n1", "--kernel-profile=mitgcm")
	s.WaitJob(id, "RUNNING")
	s.Wait(Limit, "the job's step", func() bool { return len(s.Records("alice", id)) == 1 })
	s.Node("n1").SetBootTime(time.Hour)
	s.LetGo("alice", id)
	s.WaitJob(id, "COMPLETED")
	s.Wait(Limit, "n1 to boot by kexec", func() bool { return len(s.BootsOf("n1")) == 3 })
	s.Node("n1").SetBootTime(500 * time.Millisecond)
	s.Settled(Limit, "n1")
	if boots := s.BootsOf("n1"); !slices.Equal(boots, []string{"power on", "kexec", "kexec", "reset"}) {
		t.Errorf("n1 booted by %v", boots)
	}
	s.counts(map[string]string{"switch": "1 of 1", "return": "0 of 1", "reset": "1 of 1"})
}
