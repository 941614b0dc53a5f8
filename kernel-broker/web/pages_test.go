// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// get a page as a browser without a guard does.
func get(t *testing.T, s *Server, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

// pages are all views, with words that each must have.
var pages = map[string][]string{
	"/":                         {"400 nodes", "stock@1", "job 14", `class="k1 steady"`, "Job 21", "Job 18", "scontrol release 18", `<a href="/jobs/30">Job 30_[1-9]</a> of dave <span`, "the boot took more than 2m0s"},
	"/jobs":                     {"12_1", "18, run 2", "28 s", "requeued"},
	"/jobs/14":                  {"To the kernel: 28 s", "n4 was done last. Its slowest phase: boot, 21 s", "Back to stock: 26 s", "While it ran", "taken out of service", "fetch and load, failed"},
	"/jobs/21":                  {"It waits for", "the boot of n81 and n87"},
	"/jobs/18?restart=0":        {"older"},
	"/nodes/n1":                 {"Dell-PowerEdge-R6525", "512 GiB", "out of service by eve", "drained: bad fan", "boot requested", "9.0 s", `/jobs/14?restart=0`},
	"/nodes/n96":                {"the boot took more than 2m0s", "keeps no event"},
	"/kernels":                  {"-31 %", "of the job&#39;s time", "not measured"},
	"/kernels/mitgcm":           {"mitgcm@2", "failed to boot on n95 and n96", "/kernels/mitgcm/1/report", "benefit. fewer kernel instructions", "2 min"},
	"/kernels/mitgcm/1/report":  {"<title>report</title>"},
	"/runs":                     {"next of MITgcm", "1 of 2"},
	"/runs/8":                   {"Report with flame graph", "CPU time"},
	"/runs/8/report":            {"vfs_write", "flame"},
	"/runs/7":                   {"they are for user bob"},
	"/builds":                   {"mitgcm", "2 of 3", "redis"},
	"/builds/redis":             {"make: exit 2"},
	"/hardware":                 {"211 of 212", "17 s", "hangs in the firmware", "silent for 2m0s"},
	"/health":                   {"no space left on device", "answers after 2 s", "warning"},
	"/assets/page.css":          {"--paper"},
	"/nodes?name=n17":           nil,
	"/nodes?name=../kernels":    nil,
	"/nodes?name=//example.org": nil,
}

func TestPages(t *testing.T) {
	s := serve(t, cluster(400))
	for path, words := range pages {
		w := get(t, s, path)
		want := http.StatusOK
		if words == nil {
			want = http.StatusSeeOther
		}
		if w.Code != want {
			t.Errorf("%s: status %d, want %d: %.300s", path, w.Code, want, w.Body)
		}
		for _, part := range words {
			if !strings.Contains(w.Body.String(), part) {
				t.Errorf("%s lacks %q:\n%.3000s", path, part, w.Body)
			}
		}
		if strings.Contains(w.Body.String(), hostile) {
			t.Errorf("%s has a peer's text as HTML", path)
		}
	}
	if to := get(t, s, "/nodes?name=n17").Header().Get("Location"); to != "/nodes/n17" {
		t.Errorf("a node's name leads to %q", to)
	}
	for _, name := range []string{"../kernels", "//example.org", "a/b", "..", ""} {
		if to := get(t, s, "/nodes?name="+name).Header().Get("Location"); to != "/" {
			t.Errorf("the name %q leads to %q", name, to)
		}
	}
}

func TestPagesThatAreNotThere(t *testing.T) {
	b := cluster(4)
	s := serve(t, b)
	for path, want := range map[string]int{
		"/nodes/n5": 404, "/jobs/99": 404, "/jobs/x": 404, "/jobs/14?restart=x": 404, "/jobs/14?restart=7": 404, "/kernels/x": 404, "/runs/99": 404, "/runs/x": 404,
		"/builds/x": 404, "/nowhere": 404, "/kernels/mitgcm/2/report": 404, "/kernels/mitgcm/x/report": 404, "/runs/7/report": 403, "/live/jobs/x": 404,
	} {
		if w := get(t, s, path); w.Code != want {
			t.Errorf("%s: status %d, want %d: %.300s", path, w.Code, want, w.Body)
		}
	}
	b.change(func() { b.away = true })
	for _, path := range []string{"/", "/jobs", "/nodes/n1", "/kernels", "/runs", "/hardware", "/health", "/runs/8/report"} {
		if w := get(t, s, path); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "unix:///run/b.sock does not answer: the store is away") {
			t.Errorf("%s, while the broker is away: status %d: %.300s", path, w.Code, w.Body)
		}
	}
	if w := get(t, s, "/builds"); w.Code != http.StatusOK {
		t.Errorf("builds are read from this host, and got status %d", w.Code)
	}
}

// An empty site says how each view gets its first line.
func TestEmptyPages(t *testing.T) {
	s := serve(t, &broker{})
	for path, words := range map[string]string{
		"/": "No agent has connected", "/jobs": "sbatch --kernel-profile=NAME", "/kernels": "no profile yet", "/runs": "sbatch --kernel-profiling", "/hardware": "begins with the first switch",
	} {
		if w := get(t, s, path); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), words) {
			t.Errorf("%s: status %d: %.300s", path, w.Code, w.Body)
		}
	}
}

// Only reading: no method changes anything.
func TestOnlyReading(t *testing.T) {
	s := serve(t, cluster(4))
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(method, "/jobs/14", nil))
		if w.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s is answered by %d", method, w.Code)
		}
	}
}

// A report runs in an origin of its own and loads nothing; all else runs no script but the page's.
func TestPolicies(t *testing.T) {
	s := serve(t, cluster(4))
	for path := range pages {
		h := get(t, s, path).Header()
		got := h.Get("Content-Security-Policy")
		want := policy
		if strings.HasSuffix(path, "/report") {
			want = reportPolicy
		}
		if got != want || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" || h.Get("Cross-Origin-Resource-Policy") != "same-origin" {
			t.Errorf("%s: %v", path, h)
		}
		if !strings.HasPrefix(path, "/assets/") && h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s may be kept: %v", path, h)
		}
	}
	if !strings.HasPrefix(reportPolicy, "sandbox allow-scripts; default-src 'none';") || strings.Contains(policy, "unsafe") {
		t.Error("the policies are weaker than what they are for")
	}
}
