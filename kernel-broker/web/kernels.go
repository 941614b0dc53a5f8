// SPDX-License-Identifier: Apache-2.0

package web

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/api/convert"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// profileRow is a profile in the catalog.
type profileRow struct {
	Path, Name, Application, Description, Kernel, Whole, State string
	Default                                                    uint32
	Versions                                                   int
}

func (s *Server) kernels(r *http.Request) (page, error) {
	response, err := call(r.Context(), s.calls.catalog.ListProfiles, &api.ListProfilesRequest{})
	if err != nil {
		return page{}, err
	}
	var rows []profileRow
	for _, p := range response.GetProfiles() {
		row := profileRow{Path: "/kernels/" + p.GetName(), Name: p.GetName(), Application: p.GetApplication(), Description: p.GetDescription(),
			Default: p.GetDefaultVersion(), Versions: len(p.GetVersions())}
		if v := convert.FindVersion(p, p.GetDefaultVersion()); v != nil {
			row.State = convert.VersionState(v)
			row.Kernel, row.Whole = s.o.Source.Gain(v)
		}
		rows = append(rows, row)
	}
	return page{Title: "Kernels", Here: "/kernels", Template: "kernels", Data: rows}, nil
}

// kernelView is the page of one profile.
type kernelView struct {
	Name, Application, Description string
	Facts                          []fact
	Versions                       []versionView
	History                        []*api.Change
}

// versionView is one version of a profile.
type versionView struct {
	Ref, State, Why, Kernel, Whole, Verdict, Release, BuildID, Arguments, Report string
	Default                                                                      bool
	Failures                                                                     uint32
	Size                                                                         uint64
	Registered                                                                   time.Time
}

func (s *Server) kernel(r *http.Request) (page, error) {
	p, err := s.profile(r)
	if err != nil {
		return page{}, err
	}
	v := kernelView{Name: p.GetName(), Application: p.GetApplication(), Description: p.GetDescription(), Facts: []fact{
		{"Default version", fmt.Sprint(p.GetDefaultVersion())}, {"Reuse of a node without a boot", convert.Word(p.GetReuse())},
		{"If the kernel is unavailable", convert.Word(p.GetFallback())}, {"Boots tried on a node", fmt.Sprint(p.GetBootAttempts())},
		{"Time for a boot", took(time.Duration(min(p.GetBootTimeoutMs(), 1<<40)) * time.Millisecond)},
	}, History: slices.Clone(p.GetHistory())}
	slices.Reverse(v.History)
	for _, version := range slices.Backward(p.GetVersions()) {
		v.Versions = append(v.Versions, s.versionOf(p, version))
	}
	return page{Title: "Profile " + v.Name, Here: "/kernels", Template: "kernel", Data: v}, nil
}

func (s *Server) profile(r *http.Request) (*api.Profile, error) {
	response, err := call(r.Context(), s.calls.catalog.GetProfile, &api.GetProfileRequest{Name: r.PathValue("name")})
	return response.GetProfile(), err
}

func (s *Server) versionOf(p *api.Profile, from *api.ProfileVersion) versionView {
	k := from.GetKernel()
	v := versionView{Ref: kernelRef(k.GetProfile(), k.GetVersion()), State: convert.VersionState(from), Release: k.GetRelease(), BuildID: short(k.GetBuildId()),
		Arguments: strings.Join(k.GetArguments(), " "), Default: k.GetVersion() == p.GetDefaultVersion(), Failures: from.GetBootFailures(),
		Size: k.GetImageSize() + k.GetInitrdSize() + k.GetModulesSize(), Registered: from.GetRegisteredAt().AsTime()}
	v.Kernel, v.Whole = s.o.Source.Gain(from)
	if m := from.GetMeasured(); m != nil {
		v.Verdict = strings.TrimSpace(convert.Word(m.GetOutcome()) + ". " + m.GetReason())
	}
	switch q, r := from.GetQuarantine(), from.GetRetired(); {
	case r != nil:
		v.Why = fmt.Sprintf("since %s: %s", clock(r.GetSince()), cmp.Or(r.GetReason(), "no reason is recorded"))
	case q != nil:
		v.Why = fmt.Sprintf("since %s: %s", clock(q.GetSince()), q.GetReason())
	}
	if documentOf(from) != nil {
		v.Report = fmt.Sprintf("/kernels/%s/%d/report", k.GetProfile(), k.GetVersion())
	}
	return v
}

// documentOf a version: its report as a page; nil if it has none.
func documentOf(v *api.ProfileVersion) *api.Document {
	for _, d := range v.GetDocuments() {
		if d.GetName() == "page" {
			return d
		}
	}
	return nil
}

// kernelReport serves the report that was registered with a kernel.
func (s *Server) kernelReport(w http.ResponseWriter, r *http.Request) {
	text, err := s.readKernelReport(r)
	s.serveReport(w, r, text, err)
}

func (s *Server) readKernelReport(r *http.Request) ([]byte, error) {
	p, err := s.profile(r)
	if err != nil {
		return nil, err
	}
	version, _ := strconv.ParseUint(r.PathValue("version"), 10, 32) // 0 is no version
	d := documentOf(convert.FindVersion(p, uint32(version)))
	if d == nil {
		return nil, fmt.Errorf("version %q of profile %q has no report: %w", r.PathValue("version"), p.GetName(), kb.ErrNotFound)
	}
	return s.o.Source.Document(r.Context(), d.GetDigest(), d.GetSize())
}

// reportPolicy is for pages that were made elsewhere: they run their script in an origin of their own, where no call and
// no cookie of this page is, and load nothing. Each has a narrower policy of its own inside.
const reportPolicy = "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func (s *Server) serveReport(w http.ResponseWriter, r *http.Request, text []byte, err error) {
	if err != nil {
		s.serve(w, r, func(*http.Request) (page, error) { return page{}, err })
		return
	}
	w.Header().Set("Content-Security-Policy", reportPolicy)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(text) //nolint:gosec // G705: HTML that runs in the sandbox above; an error is a reader who has gone
}
