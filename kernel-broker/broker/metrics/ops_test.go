// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/metrics"
)

// What alerts, dashboard and page ask for is served.
func TestOpsAskForWhatIsServed(t *testing.T) {
	m := metrics.New("1.2.3")
	m.Watch(everything())
	m.Events(night())
	m.Passed(0, nil)
	m.Polled(0, nil)
	served := scrape(t, m)
	dir := filepath.Join("..", "..", "..", "docs", "ops")
	for _, name := range []string{"monitoring/alerts.yaml", "monitoring/alerts.test.yaml", "monitoring/dashboard.json", "monitoring.md"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		asked := regexp.MustCompile(`\bkernelbroker_[a-z_]+\b`).FindAllString(string(text), -1)
		if len(asked) == 0 {
			t.Errorf("%s asks for nothing", name)
		}
		for _, metric := range asked {
			family := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(metric, "")
			if !strings.Contains(served, "\n# TYPE "+family+" ") {
				t.Errorf("%s asks for %s, which is not served", name, metric)
			}
		}
	}
}

// The page names everything that is served.
func TestPageNamesEveryFigure(t *testing.T) {
	m := metrics.New("1.2.3")
	m.Watch(everything())
	m.Events(night())
	m.Passed(0, nil)
	m.Polled(0, nil)
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "ops", "monitoring.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, help := range regexp.MustCompile(`(?m)^# HELP (kernelbroker_\S+)`).FindAllStringSubmatch(scrape(t, m), -1) {
		if !strings.Contains(string(page), "`"+help[1]+"`") {
			t.Errorf("docs/ops/monitoring.md does not name %s", help[1])
		}
	}
}

func TestDashboardIsJSON(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "ops", "monitoring", "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		UID    string
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil || dashboard.UID != "kernel-broker" || len(dashboard.Panels) == 0 {
		t.Fatalf("%v: %+v", err, dashboard)
	}
	for _, p := range dashboard.Panels {
		if p.Title == "" || len(p.Targets) == 0 || p.Targets[0].Expr == "" {
			t.Errorf("panel %q shows nothing", p.Title)
		}
	}
}

// everything is a state of which no part is away.
func everything() metrics.State {
	s := someState(4)
	s.StoreBytes = func(context.Context) (int64, int64, error) { return 2048, 1024, nil }
	return s
}
