// SPDX-License-Identifier: Apache-2.0

package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/hostlist"
)

// nowView is the first page.
type nowView struct {
	Cells    []cell
	Kernels  []kernelCount
	States   []stateCount
	Attend   []attend
	Switches []switching
	Waits    []waiting
}

// attend is a node that somebody should look at.
type attend struct{ Node, State, Runs, Cause string }

// switching is a job whose nodes are on their way to a kernel, or back.
type switching struct {
	Job, User, Kernel, Phase string
	Path                     string
	Ready, Nodes             int
	// Last is the newest step, and For how long the phase lasts.
	Last string
	For  time.Duration
}

// waiting is a job that waits, or whose switch failed, and why.
type waiting struct{ Job, User, Kernel, Phase, Path, Why string }

// mostJobs are listed, and mostListed are read for what switches and waits.
const (
	mostJobs   = 100
	mostListed = 1000
)

// recently failed switches are shown.
const recently = time.Hour

// mostAttended nodes, and as many jobs that wait, are listed; the grid has all nodes.
const mostAttended = 50

// lookNow asks the broker for all that the first page shows.
func (s *Server) lookNow(ctx context.Context) (*nowView, error) {
	nodes, err := call(ctx, s.calls.nodes.ListNodes, &api.ListNodesRequest{Brief: true})
	if err != nil {
		return nil, err
	}
	jobs, err := call(ctx, s.calls.jobs.ListJobs, &api.ListJobsRequest{Limit: mostListed, Waiting: true, Brief: true})
	if err != nil {
		return nil, err
	}
	return s.colour.now(nodes.GetNodes(), jobs.GetJobs(), s.o.Now()), nil
}

func (p *palette) now(nodes []*api.Node, jobs []*api.Job, at time.Time) *nowView {
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b *api.Node) int { return hostlist.Natural(a.GetName(), b.GetName()) })
	v, byName := &nowView{}, make(map[string]*api.Node, len(nodes))
	for _, n := range nodes {
		byName[n.GetName()] = n
		v.Cells = append(v.Cells, p.cellOf(n))
		if is := stateOf(n); is == stateFailed || is == stateUnproven || is == stateAway {
			v.Attend = append(v.Attend, attend{n.GetName(), string(is), runs(n), cmp.Or(n.GetCause(), n.GetSlurmReason(), unknownCause(is))})
		}
	}
	// The worst first, and in the order of their names.
	worst := func(a attend) int {
		return slices.Index([]state{stateFailed, stateUnproven, stateAway}, state(a.State))
	}
	slices.SortStableFunc(v.Attend, func(a, b attend) int { return cmp.Compare(worst(a), worst(b)) })
	v.Kernels, v.States = p.legend(nodes)
	seen := map[uint32]bool{}
	for _, j := range jobs {
		if seen[j.GetJobId()] {
			continue // the newest run of a job comes first
		}
		seen[j.GetJobId()] = true
		switch j.GetPhase() {
		case api.AllocationPhase_ALLOCATION_PHASE_ACCEPTED, api.AllocationPhase_ALLOCATION_PHASE_SWITCHING, api.AllocationPhase_ALLOCATION_PHASE_RETURNING:
			v.Switches = append(v.Switches, switchOf(j, byName, at))
		case api.AllocationPhase_ALLOCATION_PHASE_FAILED:
			if at.Sub(lastOf(j)) > recently {
				continue
			}
			fallthrough
		case api.AllocationPhase_ALLOCATION_PHASE_WAITING, api.AllocationPhase_ALLOCATION_PHASE_REQUEUED, api.AllocationPhase_ALLOCATION_PHASE_HELD:
			v.Waits = append(v.Waits, waiting{convert.JobName(j), j.GetUser(), jobKernel(j), jobPhase(j), jobPath(j), cmp.Or(j.GetReason(), "no reason is recorded")})
		}
	}
	return v
}

func unknownCause(is state) string {
	if is == stateAway {
		return "its agent has no connection to the broker"
	}
	return "no cause is known"
}

// lastOf a job's steps, when it was.
func lastOf(j *api.Job) time.Time {
	if n := len(j.GetTimeline()); n > 0 {
		return j.GetTimeline()[n-1].GetAt().AsTime()
	}
	return time.Time{}
}

func switchOf(j *api.Job, nodes map[string]*api.Node, now time.Time) switching {
	s := switching{Job: convert.JobName(j), User: j.GetUser(), Kernel: jobKernel(j), Phase: jobPhase(j), Path: jobPath(j), Nodes: len(j.GetNodes())}
	back := j.GetPhase() == api.AllocationPhase_ALLOCATION_PHASE_RETURNING
	for _, name := range j.GetNodes() {
		n := nodes[name]
		if n == nil || stateOf(n) != stateSteady {
			continue
		}
		if there := n.GetRunningProfile() == j.GetProfile() && n.GetRunningVersion() == j.GetVersion(); there != back {
			s.Ready++
		}
	}
	timeline := j.GetTimeline()
	for _, e := range slices.Backward(timeline) {
		if s.Last == "" {
			s.Last = e.GetEvent()
			if e.GetNode() != "" {
				s.Last = e.GetNode() + " " + s.Last
			}
		}
		if e.GetNode() == "" && (e.GetEvent() == "accepted" || back && e.GetEvent() == "returning") {
			s.For = max(0, now.Sub(e.GetAt().AsTime()))
			break
		}
	}
	return s
}

// quiet reports whether nothing is on its way.
func (v *nowView) quiet() bool {
	return len(v.Switches) == 0 && !slices.ContainsFunc(v.States, func(s stateCount) bool { return s.State == stateLoading || s.State == stateBooting })
}

// Names is the mark of the grid's nodes.
func (v *nowView) Names() string { return namesOf(v.Cells) }

// Left is how many attended nodes the list has no room for.
func (v *nowView) Left() int { return max(0, len(v.Attend)-mostAttended) }

// Waiting are the jobs that wait, as far as the list has room for them.
func (v *nowView) Waiting() []waiting { return v.Waits[:min(len(v.Waits), mostAttended)] }

// More is how many jobs that wait the list has no room for.
func (v *nowView) More() int { return max(0, len(v.Waits)-mostAttended) }

// Attended are those that the list has room for.
func (v *nowView) Attended() []attend { return v.Attend[:min(len(v.Attend), mostAttended)] }

func (s *Server) now(r *http.Request) (page, error) {
	v, err := s.lookNow(r.Context())
	if err != nil {
		return page{}, err
	}
	return page{Title: "Now", Here: "/", Template: "now", Data: v, Live: "/live"}, nil
}

// findNode leads from a name to its page.
func (s *Server) findNode(w http.ResponseWriter, r *http.Request) {
	if name := r.FormValue("name"); plainPath(name) {
		http.Redirect(w, r, "/nodes/"+name, http.StatusSeeOther) //nolint:gosec // G710: one element of a path, on this server
		return
	}
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// plainPath accepts what can be a node's name, and is one element of a path.
func plainPath(name string) bool {
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return name != "" && name != "." && name != ".."
}

func jobKernel(j *api.Job) string { return kernelRef(j.GetProfile(), j.GetVersion()) }
func jobPhase(j *api.Job) string  { return convert.Word(j.GetPhase()) }

// jobPath of a run of a job. One that waits in Slurm has no run yet.
func jobPath(j *api.Job) string {
	if j.GetPhase() == api.AllocationPhase_ALLOCATION_PHASE_WAITING {
		return fmt.Sprintf("/jobs/%d", j.GetJobId())
	}
	return fmt.Sprintf("/jobs/%d?restart=%d", j.GetJobId(), j.GetRestartCount())
}
