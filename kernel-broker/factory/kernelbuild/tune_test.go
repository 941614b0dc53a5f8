// SPDX-License-Identifier: Apache-2.0

package kernelbuild

import (
	"errors"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

func TestProposalsThatAreAskedFor(t *testing.T) {
	var r TuneRequest
	r.Options.Catalog = "../../../catalog"
	all, err := r.proposals()
	if err != nil || len(all) < 2 {
		t.Fatalf("%d proposals, %v", len(all), err)
	}
	r.Only = []string{all[1].Fragment, all[0].Fragment, all[1].Fragment}
	some, err := r.proposals()
	if err != nil || len(some) != 2 || some[0] != all[1] || some[1] != all[0] {
		t.Errorf("each once, in the order asked for: %+v, %v", some, err)
	}
	r.Only = []string{"none"}
	if _, err := r.proposals(); !errors.Is(err, kb.ErrNotFound) {
		t.Errorf("one that there is not: %v", err)
	}
}
