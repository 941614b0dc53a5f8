// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	keys "github.com/chromedp/chromedp/kb"
	"google.golang.org/protobuf/proto"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// axe looks for what keeps people from using a page.
//
//go:embed testdata/axe/axe.min.js
var axe string

// browser is a real one. What it complains about fails the test, unless it is expected: an error of the script, or what
// the policy refuses.
func browser(t *testing.T, expected ...string) context.Context {
	t.Helper()
	if _, err := exec.LookPath("chromium"); err != nil {
		t.Skip("needs Debian's package chromium, to see the page as people do")
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath("chromium"), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.WSURLReadTimeout(2*time.Minute), chromedp.Env("HOME="+t.TempDir()))
	ctx, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	ctx, end := chromedp.NewContext(ctx)
	t.Cleanup(end)
	var mu sync.Mutex
	var complaints []string
	err := chromedp.Listen(ctx, func(event any) {
		mu.Lock()
		defer mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			complaints = append(complaints, fmt.Sprintf("%s:%d: %s", e.ExceptionDetails.URL, e.ExceptionDetails.LineNumber, e.ExceptionDetails.Text))
		case *cdplog.EventEntryAdded:
			complaints = append(complaints, e.Entry.URL+": "+e.Entry.Text)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		for _, text := range complaints {
			if slices.ContainsFunc(expected, func(part string) bool { return strings.Contains(text, part) }) {
				continue
			}
			t.Errorf("the browser complains: %s", text)
		}
	})
	return ctx
}

func do(t *testing.T, ctx context.Context, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(ctx, steps...); err != nil {
		t.Fatal(err)
	}
}

// ask the browser for the value of an expression, or of what it promises.
func ask[T any](t *testing.T, ctx context.Context, expression string) T {
	t.Helper()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// act has an element focused or clicked in one step: an update may replace it between two.
func act(t *testing.T, ctx context.Context, selector, method string) {
	t.Helper()
	ask[any](t, ctx, fmt.Sprintf("document.querySelector(%q).%s()", selector, method))
}

// await a condition.
func await(t *testing.T, ctx context.Context, condition string) {
	t.Helper()
	if _, err := chromedp.Run(ctx, chromedp.Poll[bool](condition, chromedp.WithPollingTimeout(2*time.Minute))); err != nil {
		t.Fatalf("%s: %v", condition, err)
	}
}

// site serves a broker's page to the browser.
func site(t *testing.T, b *broker) string {
	t.Helper()
	served := httptest.NewServer(serve(t, b, func(o *Options) { o.Pause = 300 * time.Millisecond }).Handler())
	t.Cleanup(func() {
		served.CloseClientConnections()
		served.Close()
	})
	return served.URL
}

func theme(name string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
		return err
	})
}

// picture is for people to look at, if KB_SCREENSHOTS names a folder.
func picture(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	dir := os.Getenv("KB_SCREENSHOTS")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644)
	}
	if err != nil {
		t.Error(err)
	}
}

// views are the pages that people look at, by the name of their picture.
func views() map[string]string {
	all := map[string]string{"missing": "/nowhere", "empty": "/runs/9"}
	for path, words := range pages {
		if words != nil && !strings.Contains(path, "report") && !strings.HasPrefix(path, "/assets/") {
			name := strings.NewReplacer("/", "-", "?", "-", "=", "-").Replace(strings.Trim(path, "/"))
			all[name] = path
		}
	}
	all["now"] = all[""]
	delete(all, "")
	return all
}

// sideways is true of a page that is wider than its window.
const sideways = `document.documentElement.scrollWidth > document.documentElement.clientWidth`

// TestEverybodyCanUseIt has axe look at every page in both themes, at the width of a screen and of a phone.
func TestEverybodyCanUseIt(t *testing.T) {
	ctx, address := browser(t), site(t, cluster(200))
	for _, width := range []int64{1280, 360} {
		for _, scheme := range []string{"light", "dark"} {
			for name, path := range views() {
				if name == "missing" {
					continue // the browser complains of the status itself
				}
				do(t, ctx, chromedp.EmulateViewport(width, 800), theme(scheme), chromedp.Navigate(address+path))
				ask[any](t, ctx, axe)
				picture(t, ctx, fmt.Sprintf("%s-%s-%d", name, scheme, width))
				found := ask[string](t, ctx, `document.querySelectorAll("details").forEach(function (d) { d.open = true; });
					axe.run({ runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }).then(function (r) {
						return JSON.stringify(r.violations.map(function (v) { return { id: v.id, help: v.help, nodes: v.nodes.slice(0, 5).map(function (n) { return n.html + " " + n.failureSummary; }) }; }));
					})`)
				wider := ask[bool](t, ctx, sideways)
				if found != "[]" {
					t.Errorf("%s, %s, %d pixels wide: %s", path, scheme, width, found)
				}
				if wider {
					t.Errorf("%s, %d pixels wide: the page scrolls sideways", path, width)
				}
			}
		}
	}
}

// focused is what has the focus, as a person would call it.
const focused = `(function () { var e = document.activeElement; return (e.getAttribute("aria-label") || e.textContent || e.id || e.tagName).trim(); })()`

// TestByKeyboard reaches every view and a node without a mouse.
func TestByKeyboard(t *testing.T) {
	ctx, address := browser(t), site(t, cluster(400))
	press := func(all ...string) (at string) {
		t.Helper()
		for _, key := range all {
			do(t, ctx, chromedp.KeyEvent(key))
		}
		return ask[string](t, ctx, focused)
	}
	do(t, ctx, chromedp.EmulateViewport(1280, 800), chromedp.Navigate(address+"/"))
	if at := press(keys.Tab); at != "Skip to the content" {
		t.Errorf("the first stop is %q", at)
	}
	var stops []string
	for range 40 {
		at := press(keys.Tab)
		stops = append(stops, at)
		if strings.HasPrefix(at, "n1: stock@1") {
			break
		}
	}
	for _, name := range []string{"Now", "Health"} {
		if !slices.Contains(stops, name) {
			t.Errorf("%q is not among the stops %q", name, stops)
		}
	}
	if !strings.HasPrefix(stops[len(stops)-1], "n1: ") {
		t.Fatalf("the grid is not among the stops %q", stops)
	}
	if at := press(keys.ArrowRight, keys.ArrowRight); !strings.HasPrefix(at, "n3: ") {
		t.Errorf("two to the right is %q", at)
	}
	if at := press(keys.ArrowDown); strings.HasPrefix(at, "n3: ") || strings.HasPrefix(at, "n4: ") {
		t.Errorf("down from n3 is %q", at)
	}
	if at := press(keys.ArrowUp, keys.End, keys.ArrowRight, keys.Home, keys.ArrowLeft, keys.ArrowUp); !strings.HasPrefix(at, "n1: ") {
		t.Errorf("the first node is %q", at)
	}
	// The grid is one stop: the next one is behind it.
	if at := press(keys.Tab); strings.HasPrefix(at, "n2: ") {
		t.Errorf("behind the first node is %q", at)
	}
	do(t, ctx, chromedp.Focus("#grid a"), chromedp.KeyEvent(keys.Enter), chromedp.WaitVisible("dl.facts"))
	if title := ask[string](t, ctx, "document.title"); title != "Node n1 - Kernel Broker" {
		t.Errorf("Enter on the first node leads to %q", title)
	}
}

// TestLegendChooses shows the nodes of one state alone.
func TestLegendChooses(t *testing.T) {
	ctx, address := browser(t), site(t, cluster(400))
	const bright = `document.querySelectorAll(".grid.chosen a.chosen").length`
	do(t, ctx, chromedp.Navigate(address+"/"))
	act(t, ctx, `[data-kernel="booting"]`, "focus")
	do(t, ctx, chromedp.KeyEvent(keys.Enter))
	if n := ask[int](t, ctx, bright); n != 4 {
		t.Errorf("%d nodes boot, want 4", n)
	}
	do(t, ctx, chromedp.KeyEvent(keys.Enter))
	if n := ask[int](t, ctx, bright); n != 0 {
		t.Errorf("chosen again, %d nodes are left", n)
	}
}

// TestFourThousandNodes draws them, changes some, and loses the broker. The times are told and not judged: they are the
// machine's.
func TestFourThousandNodes(t *testing.T) {
	b := cluster(4000)
	ctx, address := browser(t), site(t, b)
	do(t, ctx, chromedp.EmulateViewport(1280, 900), theme("light"), chromedp.Navigate(address+"/"))
	if n := ask[int](t, ctx, `document.querySelectorAll("#grid a").length`); n != 4000 {
		t.Errorf("%d nodes are drawn", n)
	}
	if ask[bool](t, ctx, sideways) {
		t.Error("4,000 nodes are wider than the screen")
	}
	await(t, ctx, `document.getElementById("state").textContent === "Up to date."`)
	picture(t, ctx, "now-4000-light")
	ask[any](t, ctx, `window.took = 0; new MutationObserver(function () { var begin = performance.now();
		requestAnimationFrame(function () { setTimeout(function () { window.took = performance.now() - begin; }); }); })
		.observe(document.getElementById("grid"), { attributes: true, subtree: true })`)
	b.change(func() {
		for i, n := range b.nodes[:400] {
			b.nodes[i] = &api.Node{Name: n.GetName(), Phase: api.NodePhase_NODE_PHASE_BOOTING, RunningProfile: "stock", RunningVersion: 1, DesiredProfile: "mitgcm", DesiredVersion: 1}
		}
	})
	await(t, ctx, `document.querySelectorAll("#grid a.booting").length >= 400 && window.took > 0`)
	t.Logf("4,000 nodes were painted after %.0f ms, and 400 changes within %.0f ms",
		ask[float64](t, ctx, `performance.getEntriesByName("first-contentful-paint")[0].startTime`), ask[float64](t, ctx, "window.took"))
	b.change(func() { b.away = true })
	await(t, ctx, `document.getElementById("state").classList.contains("lost")`)
	if said := ask[string](t, ctx, `document.getElementById("state").textContent`); !strings.Contains(said, "does not answer") {
		t.Errorf("while the broker is away the page says %q", said)
	}
	// Other nodes than before are another grid.
	b.change(func() { b.away, b.nodes = false, b.nodes[:3990] })
	do(t, ctx, chromedp.WaitNotPresent(`#grid a[href="/nodes/n3991"]`))
}

// A report's script runs, cut off from the page that serves it.
func TestReportsAreCutOff(t *testing.T) {
	ctx, address := browser(t, "Content Security Policy"), site(t, cluster(4))
	do(t, ctx, chromedp.Navigate(address+"/kernels/mitgcm/1/report"))
	await(t, ctx, `document.title.includes("kept in")`)
	if title := ask[string](t, ctx, "document.title"); title != "ran as null, kept in" {
		t.Errorf("a report's script says %q", title)
	}
}

// TestJobIsUpToDate keeps what the reader has opened.
func TestJobIsUpToDate(t *testing.T) {
	b := cluster(4)
	ctx, address := browser(t), site(t, b)
	do(t, ctx, chromedp.Navigate(address+"/jobs/21"))
	act(t, ctx, "#steps summary", "click")
	b.change(func() {
		j := proto.CloneOf(b.jobs[0])
		j.Timeline = append(j.Timeline, &api.TimelineEvent{At: at(99), Node: "n81", Event: "booted"})
		b.jobs[0] = j
	})
	await(t, ctx, `document.querySelector("#steps").textContent.includes("booted")`)
	if !ask[bool](t, ctx, `document.querySelector("#steps").open`) {
		t.Error("an update has closed what the reader had opened")
	}
}

func TestAxeFindsWhatIsWrong(t *testing.T) {
	ctx := browser(t)
	do(t, ctx, chromedp.Navigate("data:text/html,<title>x</title><img src=''>"))
	ask[any](t, ctx, axe)
	text := ask[string](t, ctx, `axe.run().then(function (r) { return JSON.stringify(r.violations.map(function (v) { return v.id; })); })`)
	var found []string
	if err := json.Unmarshal([]byte(text), &found); err != nil || !slices.Contains(found, "image-alt") {
		t.Errorf("axe found %s, %v", text, err)
	}
}
