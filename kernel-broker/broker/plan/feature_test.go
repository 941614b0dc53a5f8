// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// commands are what a decision has slurmctld set, which then shows it.
func (w *world) featureCommands() (list []string) {
	w.t.Helper()
	for _, a := range w.decide().Actions {
		if a.Kind != SetFeatures {
			continue
		}
		list = append(list, fmt.Sprintf("%s: %s of %s", strings.Join(a.Nodes, ","), a.Text, a.Available))
		for _, name := range a.Nodes {
			s := w.slurm.Nodes[name]
			comma := func(r rune) bool { return r == ',' }
			s.Features, s.Available = strings.FieldsFunc(a.Text, comma), strings.FieldsFunc(a.Available, comma)
			w.slurm.Nodes[name] = s
		}
	}
	return list
}

// sinfo shows the proven kernel: one command for all nodes of a value, none when nothing changed, and the site's own features stay.
func TestActiveFeatures(t *testing.T) {
	w := newWorld(t)
	w.config.ActiveFeatures = true
	site := []string{"gpu", "ib"}
	restarted := func() {
		for _, name := range []string{"n1", "n2", "n3"} {
			s := w.slurm.Nodes[name]
			s.Features, s.Available = site, site
			w.slurm.Nodes[name] = s
		}
	}
	for _, name := range []string{"n1", "n2", "n3"} {
		w.node(name, "IDLE", "")
		w.boot(name, kernels[0], "")
	}
	restarted()
	w.settle()
	runs := func(ref kb.Ref, names ...string) {
		for _, name := range names {
			w.nodes[name].Running.Ref = ref
		}
	}
	want := func(when string, commands ...string) {
		t.Helper()
		if got := w.featureCommands(); !slices.Equal(got, commands) {
			t.Errorf("%s: %q\nwant %q", when, got, commands)
		}
	}
	want("on stock")
	runs(mit, "n1", "n2")
	want("a first kernel", "n1,n2,n3: gpu,ib of gpu,ib,kernel=mitgcm")
	want("and then", "n1,n2: gpu,ib,kernel=mitgcm of gpu,ib,kernel=mitgcm")
	want("nothing changed")
	runs(kb.Ref{Profile: kb.StockProfile, Version: 1}, "n1", "n2")
	want("back on stock", "n1,n2: gpu,ib of gpu,ib,kernel=mitgcm")
	runs(mit, "n2", "n3")
	runs(kb.Ref{}, "n1") // unproven
	want("a kernel that is available", "n2,n3: gpu,ib,kernel=mitgcm of gpu,ib,kernel=mitgcm")
	site = []string{"gpu", "fast"}
	restarted()
	want("slurmctld restarts with another slurm.conf", "n1,n2,n3: gpu,fast of gpu,fast,kernel=mitgcm")
	want("and then", "n2,n3: gpu,fast,kernel=mitgcm of gpu,fast,kernel=mitgcm")
	w.config.ActiveFeatures = false
	runs(kb.Ref{Profile: kb.StockProfile, Version: 1}, "n2")
	want("turned off")
}

// Nodes without features, and those of which an administrator or a plugin has made fewer active.
func TestActiveFeaturesOfOtherNodes(t *testing.T) {
	w := newWorld(t)
	w.config.ActiveFeatures = true
	for name, features := range map[string][2][]string{
		"n1": {nil, nil}, "n2": {{"a2a", "quad"}, {"quad"}}, "n3": {{"a2a", "quad"}, {"a2a"}},
	} {
		w.node(name, "IDLE", "")
		s := w.slurm.Nodes[name]
		s.Available, s.Features = features[0], features[1]
		w.slurm.Nodes[name] = s
		w.boot(name, kernels[0], "")
	}
	w.settle()
	w.nodes["n1"].Running.Ref, w.nodes["n2"].Running.Ref = mit, mit
	var got []string
	for range 3 {
		got = append(got, w.featureCommands()...)
	}
	want := []string{"n1:  of kernel=mitgcm", "n3: a2a of a2a,quad,kernel=mitgcm", "n2: quad of a2a,quad,kernel=mitgcm",
		"n1: kernel=mitgcm of kernel=mitgcm", "n2: quad,kernel=mitgcm of a2a,quad,kernel=mitgcm"}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}

// Nodes of a wave are shown together: those that change soon after a command wait for their turn, and are looked at again until then.
func TestActiveFeaturesOfAWave(t *testing.T) {
	w := newWorld(t)
	w.config.ActiveFeatures = true
	names := []string{"n1", "n2", "n3"}
	for _, name := range names {
		w.node(name, "IDLE", "")
		s := w.slurm.Nodes[name]
		s.Available, s.Features = []string{"kernel=mitgcm"}, nil
		w.slurm.Nodes[name] = s
		w.boot(name, kernels[0], "")
	}
	w.settle()
	w.featuresSet = w.now
	for _, name := range names {
		w.nodes[name].Running.Ref = mit
		w.now = w.now.Add(time.Second)
		out := w.decide()
		if !out.Awake.Nodes[name] || slices.ContainsFunc(out.Actions, func(a Action) bool { return a.Kind == SetFeatures }) {
			t.Errorf("%s is shown before its turn, or forgotten: %v", name, out.Actions)
		}
	}
	w.now = w.now.Add(featuresEvery)
	if got, want := w.featureCommands(), []string{"n1,n2,n3: kernel=mitgcm of kernel=mitgcm"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
