// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/server"
)

// wide is a cluster with one job and all that a record has.
type wide struct {
	server.Allocations
	job *kb.Allocation
}

func (w wide) Jobs(context.Context, int, *uint32) ([]*kb.Allocation, error) {
	return []*kb.Allocation{w.job}, nil
}

// known are its nodes.
type known struct{ anyNodes }

type anyNodes = server.Nodes

func (known) Nodes() []kb.NodeView {
	return []kb.NodeView{{Node: &kb.Node{Name: "n1", Hardware: kb.Hardware{Board: "Dell"}, Inventory: kb.Inventory{Architecture: "x86_64"}}}}
}

// A brief list has what tells the phases, and the record behind it stays whole.
func TestBriefLists(t *testing.T) {
	proofs := map[string]kb.Proof{"n1": {Release: "6.1"}}
	w := wide{job: &kb.Allocation{ID: kb.JobID{Job: 7}, Nodes: []string{"n1"}, Before: proofs, During: proofs, After: proofs}}
	for i, e := range []kb.Event{{Event: "accepted"}, {Node: "n1", Event: "fetching"}, {Event: "ready"}, {Node: "n1", Event: "lost"}, {Node: "n1", Event: "kexec"}} {
		w.job.Note(time.Unix(int64(i), 0), e.Node, e.Event, "")
	}
	f := serve(t, nil, func(s *server.Server) {
		api.RegisterAllocationServiceServer(s, server.NewAllocationService(w))
		api.RegisterNodeServiceServer(s, server.NewNodeService(known{}, always{}))
	})
	conn := f.as(t, plainUser)
	for _, c := range []struct {
		brief bool
		want  string
	}{{true, "accepted ready kexec; 0 proofs; board false, inventory false"}, {false, "accepted fetching ready lost kexec; 3 proofs; board true, inventory true"}} {
		jobs, err := api.NewAllocationServiceClient(conn).ListJobs(t.Context(), &api.ListJobsRequest{Brief: c.brief})
		if err != nil {
			t.Fatal(err)
		}
		nodes, err := api.NewNodeServiceClient(conn).ListNodes(t.Context(), &api.ListNodesRequest{Brief: c.brief})
		if err != nil {
			t.Fatal(err)
		}
		j, n := jobs.GetJobs()[0], nodes.GetNodes()[0]
		var events []string
		for _, e := range j.GetTimeline() {
			events = append(events, e.GetEvent())
		}
		got := fmt.Sprintf("%s; %d proofs; board %v, inventory %v", strings.Join(events, " "), len(j.GetBefore())+len(j.GetDuring())+len(j.GetAfter()), n.GetHardware() != nil, n.GetInventory() != nil)
		if got != c.want {
			t.Errorf("brief %v: %s, want %s", c.brief, got, c.want)
		}
	}
}
