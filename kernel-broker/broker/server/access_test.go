// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
)

const (
	plainUser = 4242
	slurmUser = 4243
	operator  = 4244
)

// Echoes of the lead's services: they answer whoever comes through the door.
type jobs struct {
	api.UnimplementedAllocationServiceServer
}

func (jobs) ReleaseJob(context.Context, *api.ReleaseJobRequest) (*api.ReleaseJobResponse, error) {
	return &api.ReleaseJobResponse{}, nil
}

func (jobs) GetJob(ctx context.Context, _ *api.GetJobRequest) (*api.GetJobResponse, error) {
	return &api.GetJobResponse{Job: &api.Job{Uid: server.CallerOf(ctx).UID}}, nil
}

func (jobs) ListJobs(context.Context, *api.ListJobsRequest) (*api.ListJobsResponse, error) {
	panic("a fault")
}

type nodes struct {
	api.UnimplementedNodeServiceServer
}

func (nodes) Connect(stream api.NodeService_ConnectServer) error {
	message, err := stream.Recv()
	if err != nil {
		return err
	}
	return stream.Send(&api.ConnectResponse{Message: &api.ConnectResponse_Snapshot{Snapshot: message.GetHello().GetNode()}})
}

func both(s *server.Server) {
	api.RegisterAllocationServiceServer(s, jobs{})
	api.RegisterNodeServiceServer(s, nodes{})
}

func users(o *server.Options) {
	o.SlurmUsers = []uint32{slurmUser}
	o.Administrators = []uint32{operator}
}

func connect(t *testing.T, conn *grpc.ClientConn, node string) error {
	t.Helper()
	stream, err := api.NewNodeServiceClient(conn).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	say(t, stream, &api.ConnectRequest{Message: &api.ConnectRequest_Hello{Hello: &api.Hello{Node: node}}})
	_, err = stream.Recv()
	return err
}

// calls are one method of each kind of access.
var calls = map[string]func(context.Context, *testing.T, *grpc.ClientConn) error{
	"snapshot": func(ctx context.Context, _ *testing.T, c *grpc.ClientConn) error {
		_, err := api.NewCatalogServiceClient(c).GetSnapshot(ctx, &api.GetSnapshotRequest{})
		return err
	},
	"list": func(ctx context.Context, _ *testing.T, c *grpc.ClientConn) error {
		_, err := api.NewCatalogServiceClient(c).ListProfiles(ctx, &api.ListProfilesRequest{})
		return err
	},
	"releasejob": func(ctx context.Context, _ *testing.T, c *grpc.ClientConn) error {
		_, err := api.NewAllocationServiceClient(c).ReleaseJob(ctx, &api.ReleaseJobRequest{JobId: 1})
		return err
	},
	"apply": func(ctx context.Context, _ *testing.T, c *grpc.ClientConn) error {
		_, err := api.NewCatalogServiceClient(c).ApplyProfile(ctx, &api.ApplyProfileRequest{RequestId: "a", Profile: apiProfile("p", digestOf(nil), 0)})
		return err
	},
	"connect": func(_ context.Context, t *testing.T, c *grpc.ClientConn) error { return connect(t, c, "n1") },
	"health": func(ctx context.Context, _ *testing.T, c *grpc.ClientConn) error {
		_, err := grpc_health_v1.NewHealthClient(c).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
		return err
	},
}

func TestWhoMayCallWhat(t *testing.T) {
	f := serve(t, users, both)
	for _, who := range []struct {
		name string
		conn func(*testing.T) *grpc.ClientConn
		may  string
	}{
		{"root", func(t *testing.T) *grpc.ClientConn { return f.local(t) }, "snapshot list releasejob apply connect health"},
		{"operator", func(t *testing.T) *grpc.ClientConn { return f.as(t, operator) }, "snapshot list releasejob apply connect health"},
		{"slurm", func(t *testing.T) *grpc.ClientConn { return f.as(t, slurmUser) }, "snapshot list releasejob health"},
		{"user", func(t *testing.T) *grpc.ClientConn { return f.as(t, plainUser) }, "snapshot list health"},
		{"network", func(t *testing.T) *grpc.ClientConn { return f.remote(t) }, "snapshot connect health"},
	} {
		t.Run(who.name, func(t *testing.T) {
			conn := who.conn(t)
			for name, call := range calls {
				err := call(t.Context(), t, conn)
				allowed := strings.Contains(" "+who.may+" ", " "+name+" ")
				code := codes.PermissionDenied
				if who.name == "network" && (name == "list" || name == "apply") {
					code = codes.Unauthenticated // a credential would tell who it is
				}
				if allowed && err != nil || !allowed && status.Code(err) != code {
					t.Errorf("%s: %v, allowed %v", name, err, allowed)
				}
			}
		})
	}
}

func TestDeniedTexts(t *testing.T) {
	f := serve(t, users, both)
	_, err := api.NewCatalogServiceClient(f.remote(t)).ListProfiles(t.Context(), &api.ListProfilesRequest{})
	want(t, "from the network", err, codes.Unauthenticated, "ListProfiles is for users, and nothing proves who you are, over the network from 127.0.0.1:")
	_, err = api.NewCatalogServiceClient(f.as(t, plainUser)).ReleaseQuarantine(t.Context(), &api.ReleaseQuarantineRequest{RequestId: "1", Name: "mitgcm", Version: 1})
	want(t, "a user", err, codes.PermissionDenied, `ReleaseQuarantine: permission denied: uid 4242 may not release profile "mitgcm@1": only administrators may`)
	if !strings.Contains(f.log.String(), "level=WARN msg=call method=/kernelbroker.v1.CatalogService/ReleaseQuarantine caller=\"uid 4242 (pid ") {
		t.Errorf("log: %s", f.log)
	}
}

func TestAgentsFromPrivilegedPorts(t *testing.T) {
	f := serve(t, func(o *server.Options) { o.PrivilegedAgents = true }, both)
	want(t, "open port", connect(t, f.remote(t), "n1"), codes.PermissionDenied, "agents have to dial from a port below 1024")
	if os.Geteuid() != 0 {
		t.Skip("only root can dial from a privileged port")
	}
	if err := connect(t, f.privileged(t), "n1"); err != nil {
		t.Error(err)
	}
}

func TestTheCallerIsKnown(t *testing.T) {
	f := serve(t, nil, both)
	job, err := api.NewAllocationServiceClient(f.as(t, plainUser)).GetJob(t.Context(), &api.GetJobRequest{JobId: 1})
	if err != nil || job.GetJob().GetUid() != plainUser {
		t.Errorf("GetJob = %v, %v", job, err)
	}
}

func TestPanicsEndOnlyTheirCall(t *testing.T) {
	f := serve(t, nil, both)
	client := api.NewAllocationServiceClient(f.local(t))
	_, err := client.ListJobs(t.Context(), &api.ListJobsRequest{})
	want(t, "panic", err, codes.Internal, "see the broker's log")
	if !strings.Contains(f.log.String(), "a fault") || !strings.Contains(f.log.String(), "access_test.go") {
		t.Errorf("the log has no cause or no stack: %s", f.log)
	}
	if _, err := client.GetJob(t.Context(), &api.GetJobRequest{JobId: 1}); err != nil {
		t.Errorf("the next call = %v", err)
	}
}

func TestRequestsAreValidated(t *testing.T) {
	f := serve(t, nil, func(s *server.Server) {
		both(s)
		api.RegisterRunServiceServer(s, server.NewRunService(server.RunOptions{Runs: twoUsers{}}))
	})
	conn := f.local(t)
	allocation := api.NewAllocationServiceClient(conn)
	ctx := t.Context()
	_, err := allocation.ReleaseJob(ctx, &api.ReleaseJobRequest{})
	want(t, "job 0", err, codes.InvalidArgument, "job id is 0")
	_, err = allocation.NoteReboot(ctx, &api.NoteRebootRequest{Nodes: []string{"n1", "n1"}})
	want(t, "twice", err, codes.InvalidArgument, `"n1" is named twice`)
	_, err = allocation.NoteReboot(ctx, &api.NoteRebootRequest{})
	want(t, "no nodes", err, codes.InvalidArgument, "0 nodes")
	_, err = allocation.ListJobs(ctx, &api.ListJobsRequest{Limit: 1001})
	want(t, "limit", err, codes.InvalidArgument, "limit 1001, at most 1000 can be listed")
	_, err = api.NewRunServiceClient(conn).ListRuns(ctx, &api.ListRunsRequest{Limit: 1001})
	want(t, "limit of runs", err, codes.InvalidArgument, "limit 1001, at most 1000 can be listed")
	if _, err = api.NewRunServiceClient(conn).ListRuns(ctx, &api.ListRunsRequest{Limit: 1000}); err != nil {
		t.Errorf("as many as there may be: %v", err)
	}
	stream, err := allocation.EnsureKernel(ctx, &api.EnsureKernelRequest{JobId: 1, Profile: "mitgcm", Nodes: []string{"n1;reboot"}})
	if err == nil {
		_, err = stream.Recv()
	}
	want(t, "node name", err, codes.InvalidArgument, `"n1;reboot"`)
	want(t, "hello", connect(t, conn, "no node"), codes.InvalidArgument, `"no node"`)
	_, err = api.NewNodeServiceClient(conn).GetNode(ctx, &api.GetNodeRequest{Name: "-x"})
	want(t, "node", err, codes.InvalidArgument, `"-x"`)
	many := make([]string, 65536)
	for i := range many {
		many[i] = fmt.Sprintf("node-%058d", i)
	}
	_, err = allocation.NoteReboot(ctx, &api.NoteRebootRequest{Nodes: many})
	want(t, "the largest list", err, codes.Unimplemented, "NoteReboot")
}

func TestHealth(t *testing.T) {
	f := serve(t, nil, both)
	conn := f.local(t)
	standard := grpc_health_v1.NewHealthClient(conn)
	for _, ill := range []bool{false, true} {
		if ill {
			f.components[1] = server.Component{Name: "slurm", Detail: "slurmctld does not answer"}
		}
		got, err := api.NewHealthServiceClient(conn).GetHealth(t.Context(), &api.GetHealthRequest{})
		if err != nil || got.GetHealthy() == ill || got.GetVersion() != "1.2.3" || len(got.GetComponents()) != 2 {
			t.Errorf("ill %v: GetHealth = %v, %v", ill, got, err)
		}
		check, err := standard.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "kernelbroker.v1.CatalogService"})
		if err != nil || (check.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING) == ill {
			t.Errorf("ill %v: Check = %v, %v", ill, check, err)
		}
	}
	_, err := standard.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "other"})
	want(t, "unknown service", err, codes.NotFound, "unknown service")
	watch, err := standard.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if first, err := watch.Recv(); err != nil || first.GetStatus() != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("Watch = %v, %v", first, err)
	}
}

func TestReflection(t *testing.T) {
	f := serve(t, nil, both)
	stream, err := reflectionv1.NewServerReflectionClient(f.local(t)).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	say(t, stream, &reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}})
	answer, err := stream.Recv()
	if err != nil || len(answer.GetListServicesResponse().GetService()) < 5 {
		t.Errorf("reflection = %v, %v", answer, err)
	}
}

func TestMethodsNobodyServes(t *testing.T) {
	f := serve(t, nil, nil)
	err := f.local(t).Invoke(t.Context(), "/kernelbroker.v1.CatalogService/Nothing", &api.GetNodeRequest{}, &api.GetNodeResponse{})
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("unknown method = %v", err)
	}
}

func TestASilentUploadEndsWithItsClient(t *testing.T) {
	f := serve(t, nil, nil)
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := api.NewCatalogServiceClient(f.local(t)).UploadArtifact(ctx)
	if err != nil {
		t.Fatal(err)
	}
	say(t, stream, &api.UploadArtifactRequest{Digest: digestOf(nil), Size: 5})
	cancel()
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(f.log.String(), "method=/kernelbroker.v1.CatalogService/UploadArtifact"); {
		if time.Now().After(deadline) {
			t.Fatal("the call never ended")
		}
		time.Sleep(5 * time.Millisecond)
	}
}
