// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/credential"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/munge"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/controller"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/explain"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
)

// twoUsers has job 1 and run 1 of the plain user, job 2 and run 2 of another,
// run 3 that nobody's job has yet, and a node for each job.
type twoUsers struct {
	server.Allocations
	server.Runs
}

// nodesOf is server.Nodes by another name.
type (
	nodesOf    = server.Nodes
	theirNodes struct{ nodesOf }
)

const other = 5555

func (twoUsers) Job(_ context.Context, job uint32, _ *uint32) (*kb.Allocation, error) {
	switch job {
	case 1:
		return &kb.Allocation{ID: kb.JobID{Job: 1}, UID: plainUser, HandedTo: "77", Timeline: []kb.Event{
			{Event: "running"}, {Node: "n1", Event: "kept", Detail: "for job 77"}, {Node: "n1", Event: "let go", Detail: "job 77 did not come"},
			{Node: "n1", Event: "drained by the gate", Detail: "job 77: wanted stock"}, {Node: "n1", Event: "returning", Detail: "to stock"},
		}}, nil
	case 2:
		return &kb.Allocation{ID: kb.JobID{Job: 2}, UID: other}, nil
	}
	return nil, fmt.Errorf("job %d never asked for a kernel: %w", job, kb.ErrNotFound)
}

func (u twoUsers) Waiting(_ context.Context, job uint32) (kb.SlurmJob, error) {
	return kb.SlurmJob{}, fmt.Errorf("job %d never asked for a kernel: %w", job, kb.ErrNotFound)
}

func (twoUsers) Explain(job uint32) (explain.Answer, error) {
	answer := explain.Answer{Job: kb.SlurmJob{ID: job, Reference: "1", UID: plainUser, State: "PENDING", Reason: "Resources"}, Waits: []string{"Slurm"},
		Nodes: []explain.Node{{Name: "n1", Since: time.Unix(60, 0)}}}
	switch job {
	case 1:
		return answer, nil
	case 2:
		answer.Job.UID = other
		return answer, nil
	}
	return explain.Answer{}, fmt.Errorf("job %d has ended or is unknown: %w", job, kb.ErrNotFound)
}

func (u twoUsers) Jobs(ctx context.Context, _ int, of *uint32) (list []*kb.Allocation, _ error) {
	for job := range uint32(2) {
		if a, err := u.Job(ctx, job+1, nil); err != nil {
			return nil, err
		} else if of == nil || *of == a.UID {
			list = append(list, a)
		}
	}
	return list, nil
}

func (twoUsers) ProfilingRun(_ context.Context, id uint64) (*kb.Run, error) {
	switch id {
	case 1:
		return &kb.Run{ID: 1, Job: kb.JobID{Job: 1}, UID: plainUser, State: kb.RunComplete, Nodes: []kb.RunNode{
			{Name: "n1", State: kb.RunNodeDelivered, Files: []kb.Document{{Name: kb.ResultFile, Digest: digestOf(nil)}}}}}, nil
	case 2:
		return &kb.Run{ID: 2, Job: kb.JobID{Job: 2}, UID: other, State: kb.RunComplete}, nil
	case 3:
		return &kb.Run{ID: 3, Application: "MITgcm", State: kb.RunRequested}, nil
	}
	return nil, fmt.Errorf("run %d: %w", id, kb.ErrNotFound)
}

func (u twoUsers) ProfilingRuns(ctx context.Context, _ int, _ uint32, of *uint32) (list []*kb.Run, _ error) {
	for id := range uint64(3) {
		if r, err := u.ProfilingRun(ctx, id+1); err != nil {
			return nil, err
		} else if of == nil || !r.Job.IsZero() && *of == r.UID {
			list = append(list, r)
		}
	}
	return list, nil
}

func (twoUsers) WatchRun(context.Context, uint64) (<-chan controller.Figures, error) {
	return nil, fmt.Errorf("the run is over: %w", kb.ErrFailedPrecondition)
}

func (theirNodes) Nodes() []kb.NodeView {
	armed := func(node, job string) kb.SlurmNode {
		return kb.SlurmNode{Name: node, State: "ALLOCATED", Reason: "kprof: mitgcm@1 for job " + job, By: "slurm@2026-11-27T07:14:10"}
	}
	return []kb.NodeView{
		{Node: &kb.Node{Name: "n1", Owner: kb.JobID{Job: 1}}, JobUID: plainUser, Slurm: armed("n1", "1")},
		{Node: &kb.Node{Name: "n2", Owner: kb.JobID{Job: 2}}, JobUID: other, Slurm: armed("n2", "2")},
	}
}

// oneCluster is the server of those, whose Slurm shows others' jobs to whom it
// is told.
func oneCluster(t *testing.T, shows func(uint32) bool) *fixture {
	return serve(t, func(o *server.Options) {
		o.SlurmUsers = []uint32{slurmUser}
		if shows != nil {
			o.ShowsOthers = func(_ context.Context, uid uint32) bool { return shows(uid) }
		}
	}, func(s *server.Server) {
		api.RegisterAllocationServiceServer(s, server.NewAllocationService(twoUsers{}))
		api.RegisterRunServiceServer(s, server.NewRunService(server.RunOptions{Runs: twoUsers{}}))
		api.RegisterNodeServiceServer(s, server.NewNodeService(theirNodes{}, always{}))
	})
}

// seen is all that a user gets to see of others and of himself.
func seen(t *testing.T, conn *grpc.ClientConn) string {
	t.Helper()
	var out []string
	all, err := api.NewAllocationServiceClient(conn).ListJobs(t.Context(), &api.ListJobsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range all.GetJobs() {
		out = append(out, fmt.Sprintf("job%d", j.GetJobId()))
	}
	runs, err := api.NewRunServiceClient(conn).ListRuns(t.Context(), &api.ListRunsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range runs.GetRuns() {
		out = append(out, fmt.Sprintf("run%d", r.GetId()))
	}
	nodes, err := api.NewNodeServiceClient(conn).ListNodes(t.Context(), &api.ListNodesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes.GetNodes() {
		_, reason, told := strings.Cut(n.GetSlurmReason(), "for job")
		if n.GetJobId() != 0 || told {
			out = append(out, fmt.Sprintf("%s:%d", n.GetName(), n.GetJobId()))
		}
		if told && !strings.HasPrefix(reason, fmt.Sprintf(" %d ", n.GetJobId())) {
			t.Errorf("%s is of job %d and says%s", n.GetName(), n.GetJobId(), reason)
		}
	}
	return strings.Join(out, " ")
}

// With PrivateData=jobs a plain user sees no job, run or node's job but his own.
func TestPrivateDataJobs(t *testing.T) {
	const all, own = "job1 job2 run1 run2 run3 n1:1 n2:2", "job1 run1 n1:1"
	f := oneCluster(t, func(uid uint32) bool { return uid == operator })
	for _, c := range []struct {
		name string
		uid  int
		want string
	}{
		{"a plain user", plainUser, own},
		{"Slurm's operator", operator, all},
		{"Slurm's user, as the hooks are", slurmUser, all},
		{"root", 0, all},
	} {
		if got := seen(t, f.as(t, c.uid)); got != c.want {
			t.Errorf("%s sees %q, want %q", c.name, got, c.want)
		}
	}
	if got := seen(t, oneCluster(t, nil).as(t, plainUser)); got != all {
		t.Errorf("without PrivateData: %q", got)
	}
}

// What is hidden is told apart from what is not there by nobody.
func TestPrivateDataHidesThatThereIsSomething(t *testing.T) {
	f := oneCluster(t, func(uint32) bool { return false })
	conn := f.as(t, plainUser)
	for name, ask := range map[string]func(id uint32) error{
		"job": func(id uint32) error {
			_, err := api.NewAllocationServiceClient(conn).GetJob(t.Context(), &api.GetJobRequest{JobId: id})
			return err
		},
		"wait": func(id uint32) error {
			_, err := api.NewAllocationServiceClient(conn).GetJobWait(t.Context(), &api.GetJobWaitRequest{JobId: id})
			return err
		},
		"run": func(id uint32) error {
			_, err := api.NewRunServiceClient(conn).GetRun(t.Context(), &api.GetRunRequest{Id: uint64(id)})
			return err
		},
		"watched run": func(id uint32) error {
			stream, err := api.NewRunServiceClient(conn).WatchRun(t.Context(), &api.WatchRunRequest{Id: uint64(id)})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		},
	} {
		others, none := ask(2), ask(9)
		want(t, name+" of another", others, codes.NotFound, "PrivateData=jobs")
		if status.Code(none) != codes.NotFound || strings.ReplaceAll(status.Convert(none).Message(), " 9: ", " 2: ") != status.Convert(others).Message() {
			t.Errorf("%s: %v is told apart from %v", name, none, others)
		}
	}
	_, err := api.NewRunServiceClient(conn).GetRun(t.Context(), &api.GetRunRequest{Id: 3})
	want(t, "a run of nobody yet", err, codes.NotFound, "PrivateData=jobs")
	if _, err := api.NewAllocationServiceClient(conn).GetJob(t.Context(), &api.GetJobRequest{JobId: 1}); err != nil {
		t.Errorf("his own job: %v", err)
	}
	why, err := api.NewAllocationServiceClient(conn).GetJobWait(t.Context(), &api.GetJobWaitRequest{JobId: 1})
	if err != nil || why.GetReference() != "1" || why.GetState() != "PENDING" || why.GetReason() != "Resources" || why.GetWaits()[0] != "Slurm" ||
		why.GetNodes()[0].GetName() != "n1" || why.GetNodes()[0].GetSince().AsTime().Unix() != 60 {
		t.Errorf("his own job's wait: %v, %v", why, err)
	}
}

// What a user's own job says of the next jobs on its nodes is for those who see other users' jobs.
func TestPrivateDataInOnesOwnJob(t *testing.T) {
	f := oneCluster(t, func(uint32) bool { return false })
	for uid, others := range map[int]bool{plainUser: false, 0: true} {
		client := api.NewAllocationServiceClient(f.as(t, uid))
		one, err := client.GetJob(t.Context(), &api.GetJobRequest{JobId: 1})
		if err != nil {
			t.Fatal(err)
		}
		all, err := client.ListJobs(t.Context(), &api.ListJobsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := client.ListJobs(t.Context(), &api.ListJobsRequest{Uid: new(uint32(other))})
		if err != nil || len(theirs.GetJobs()) > 0 != others {
			t.Errorf("uid %d asks for another's jobs and sees %v, %v", uid, theirs, err)
		}
		for _, job := range []*api.Job{one.GetJob(), all.GetJobs()[0]} {
			text := job.String()
			if strings.Contains(text, "77") != others || (job.GetHandedTo() != "") != others {
				t.Errorf("uid %d sees %s", uid, text)
			}
			if len(job.GetTimeline()) != 5 || !strings.Contains(text, "to stock") {
				t.Errorf("uid %d: the job's own events are gone: %s", uid, text)
			}
		}
	}
}

// Administrators by the policy see what a run found, as those of broker.yaml do.
func TestAdministratorsByThePolicySeeRuns(t *testing.T) {
	f := trust(t)
	f.fixture = serve(t, func(o *server.Options) {
		o.Authorizer = f.authorizer
		o.Verifier = credential.NewVerifier(credential.Options{Decoder: munge.New(f.munged.Socket), Cluster: cluster})
	}, func(s *server.Server) {
		api.RegisterRunServiceServer(s, server.NewRunService(server.RunOptions{Runs: twoUsers{}}))
	})
	for uid, c := range map[uint32]struct {
		files int
		watch codes.Code
	}{operator: {1, codes.FailedPrecondition}, plainUser: {1, codes.FailedPrecondition}, carol: {0, codes.PermissionDenied}, 0: {0, codes.PermissionDenied}} {
		client := api.NewRunServiceClient(f.by(t, uid))
		run, err := client.GetRun(t.Context(), &api.GetRunRequest{Id: 1})
		if err != nil || len(run.GetRun().GetNodes()[0].GetFiles()) != c.files {
			t.Errorf("uid %d sees %v, %v", uid, run, err)
		}
		stream, err := client.WatchRun(t.Context(), &api.WatchRunRequest{Id: 1})
		if err == nil {
			_, err = stream.Recv()
		}
		want(t, fmt.Sprintf("uid %d watches", uid), err, c.watch, "")
	}
}
