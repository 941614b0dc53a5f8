package bpf

import "time"

// Way measures what the kernel's way to programs and back costs, which its
// statistics do not see: the longer path of a system call, the trampoline in
// front of a function. A call of ours takes that way before the programs are
// attached and after; a program sees that it is not the job's and ends at once.
type Way struct {
	call   func()
	before time.Duration
}

// NewWay times the call without the programs.
func NewWay(call func()) Way { return Way{call, fastest(call)} }

// Of the programs that are attached now, for each of so many that the call
// meets.
func (w Way) Of(programs int) time.Duration {
	return max(0, fastest(w.call)-w.before) / time.Duration(programs)
}

// fastest is how long a call takes when nothing comes in between: the best of
// several rounds that are too short for much to come.
func fastest(call func()) time.Duration {
	const rounds, calls = 20, 50
	best := time.Hour
	for range rounds {
		began := time.Now()
		for range calls {
			call()
		}
		best = min(best, time.Since(began))
	}
	return best / calls
}
