// SPDX-License-Identifier: Apache-2.0

package web

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// hardwareView is the ledger with its rules.
type hardwareView struct {
	Rows  []ledgerRow
	Rules []ruleRow
}

// ledgerRow is how one kernel boots in one way on one kind of hardware.
type ledgerRow struct {
	Board, Firmware, Network, Kernel, Way string
	Tries, Successes                      uint64
	Median, P95                           time.Duration
	Last                                  time.Time
	Failure                               string
}

// ruleRow is a rule on where kexec is not used.
type ruleRow struct{ Name, Scope, Kexec, By, Author, Reason string }

func (s *Server) hardware(r *http.Request) (page, error) {
	response, err := call(r.Context(), s.calls.hardware.ListHardware, &api.ListHardwareRequest{})
	if err != nil {
		return page{}, err
	}
	v := hardwareView{}
	for _, row := range response.GetRows() {
		v.Rows = append(v.Rows, ledgerOf(row))
	}
	for _, rule := range response.GetRules() {
		v.Rules = append(v.Rules, ruleOf(rule))
	}
	return page{Title: "Hardware", Here: "/hardware", Template: "hardware", Data: v}, nil
}

func ledgerOf(r *api.HardwareRow) ledgerRow {
	h := r.GetHardware()
	row := ledgerRow{Board: cmp.Or(h.GetBoard(), "unknown"), Firmware: h.GetFirmware(), Network: h.GetNic(), Kernel: kernelRef(r.GetProfile(), r.GetVersion()),
		Way: convert.Word(r.GetWay()), Tries: r.GetTries(), Successes: r.GetSuccesses(), Median: -1, P95: -1, Last: convert.TimeFromProto(r.GetLast())}
	for _, p := range r.GetPhases() {
		if p.GetPhase() == "total" {
			row.Median, row.P95 = p.GetMedian().AsDuration(), p.GetP95().AsDuration()
		}
	}
	if r.GetFailedNode() != "" {
		row.Failure = fmt.Sprintf("%s, %s: %s", r.GetFailedNode(), clock(r.GetFailedAt()), r.GetFailedCause())
	}
	return row
}

func ruleOf(r *api.HardwareRule) ruleRow {
	var scope []string
	for _, part := range [][2]string{{"node", r.GetNode()}, {"board", r.GetBoard()}, {"firmware", r.GetFirmware()}, {"network", r.GetNic()}, {"kernel", r.GetKernel()}} {
		if part[1] != "" {
			scope = append(scope, part[0]+" "+part[1])
		}
	}
	kexec := convert.Word(r.GetKexec())
	if r.GetOnce() {
		kexec += ", once"
	}
	return ruleRow{r.GetName(), strings.Join(scope, ", "), kexec, convert.Word(r.GetBy()), r.GetAuthor(), r.GetReason()}
}
