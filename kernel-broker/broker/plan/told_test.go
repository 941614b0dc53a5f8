// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

const bootOne, bootTwo = "11111111-0000-4000-8000-000000000001", "22222222-0000-4000-8000-000000000002"

func TestTold(t *testing.T) {
	stock, mitgcm := kernel(kb.StockProfile, 1), kernel("mitgcm", 3)
	proof := func(k kb.Kernel) kb.Proof { return kb.Proof{Ref: k.Ref(), BootID: bootOne} }
	for name, c := range map[string]struct {
		node              kb.Node
		attested, allowed bool
		boots             string
	}{
		"steady on stock":                     {kb.Node{Desired: stock.Ref(), Running: proof(stock)}, true, true, ""},
		"steady on the job's kernel":          {kb.Node{Desired: mitgcm.Ref(), Running: proof(mitgcm), Owner: kb.JobID{Job: 7}}, true, true, ""},
		"unproven":                            {kb.Node{Desired: stock.Ref()}, false, false, ""},
		"the proof is of another boot":        {kb.Node{Desired: stock.Ref(), Running: kb.Proof{Ref: stock.Ref(), BootID: bootTwo}}, false, false, ""},
		"another kernel than is wanted":       {kb.Node{Desired: mitgcm.Ref(), Running: proof(stock)}, true, false, ""},
		"loading":                             {kb.Node{Desired: mitgcm.Ref(), Running: proof(stock), Pending: &kb.Pending{Kernel: mitgcm, Token: "t", Progress: kb.ProgressLoading}}, true, false, "mitgcm@3"},
		"booting":                             {kb.Node{Desired: mitgcm.Ref(), Running: proof(stock), Pending: &kb.Pending{Kernel: mitgcm, Token: "t", Progress: kb.ProgressBooting}}, true, false, "mitgcm@3"},
		"failed, and it runs stock":           {kb.Node{Desired: mitgcm.Ref(), Running: proof(stock), Failure: &kb.Failure{}}, true, true, ""},
		"failed to go back, and runs another": {kb.Node{Desired: stock.Ref(), Running: proof(mitgcm), Failure: &kb.Failure{}}, true, false, ""},
		"failed, and unproven":                {kb.Node{Desired: stock.Ref(), Failure: &kb.Failure{}}, false, false, ""},
	} {
		c.node.Boot.BootID = bootOne
		c.node.Told = new(decision).told(&c.node)
		d := c.node.DesiredState(time.Now())
		boots := ""
		if d.Kernel != nil {
			boots = d.Kernel.Ref().String()
		}
		if d.Attested != c.attested || d.SlurmdAllowed != c.allowed || boots != c.boots || (d.Token != "") != (boots != "") {
			t.Errorf("%s: %+v", name, d)
		}
		if jobs := !c.node.Owner.IsZero(); jobs != (len(d.Jobs) == 1) {
			t.Errorf("%s: jobs %v", name, d.Jobs)
		}
	}
}

// A node on stock takes no step of the job that left it.
func TestToldAfterAJob(t *testing.T) {
	stock, mitgcm := kernel(kb.StockProfile, 1), kernel("mitgcm", 3)
	left := kb.JobID{Job: 7}
	for name, c := range map[string]struct {
		node kb.Node
		lost bool
	}{
		"back on stock":                 {kb.Node{Running: kb.Proof{Ref: stock.Ref(), BootID: bootOne}, Timeline: left, LeftAt: time.Now()}, true},
		"kept on the job's kernel":      {kb.Node{Running: kb.Proof{Ref: mitgcm.Ref(), BootID: bootOne}, Timeline: left, LeftAt: time.Now()}, false},
		"on stock, and nobody has left": {kb.Node{Running: kb.Proof{Ref: stock.Ref(), BootID: bootOne}}, false},
	} {
		c.node.Boot.BootID = bootOne
		if lost := new(decision).told(&c.node).Lost; (lost == 7) != c.lost || lost != 0 && lost != 7 {
			t.Errorf("%s: lost %v", name, lost)
		}
	}
}
