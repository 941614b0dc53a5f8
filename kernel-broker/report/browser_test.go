// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// driver does what a reader would, and tells what it saw in the page's title.
const driver = `
(function () {
  var out = [];
  function column(table, n) {
    return Array.from(table.tBodies[0].rows).map(function (r) { return r.cells[n].textContent.trim(); }).join(" ");
  }
  var table = document.querySelector("table"), buttons = table.querySelectorAll("thead button");
  buttons[1].click(); out.push("up: " + column(table, 0));
  buttons[1].click(); out.push("down: " + column(table, 0) + " " + table.tHead.rows[0].cells[1].getAttribute("aria-sort"));
  buttons[0].click(); out.push("name: " + column(table, 0));
  window.dispatchEvent(new Event("beforeprint")); out.push("printed: " + document.querySelectorAll("details[open]").length);
  window.dispatchEvent(new Event("afterprint")); out.push("after: " + document.querySelectorAll("details[open]").length);
  function shown() {
    return Array.from(document.querySelectorAll(".frame")).filter(function (g) { return g.getAttribute("visibility") !== "hidden"; })
      .map(function (g) { return g.getAttribute("data-name") + Math.round(g.querySelector("rect").getAttribute("width")); }).join(" ");
  }
  out.push("whole: " + shown());
  document.querySelectorAll(".frame")[1].dispatchEvent(new MouseEvent("click", { bubbles: true })); out.push("write: " + shown());
  document.querySelector(".whole").click(); out.push("back: " + shown());
  var find = document.querySelector(".find"); find.value = "COPY"; find.dispatchEvent(new Event("input"));
  out.push("found: " + document.querySelectorAll(".found").length + " " + document.querySelector("output").textContent);
  function press(key) { document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: key, bubbles: true })); return document.activeElement.getAttribute("data-name"); }
  document.querySelector(".frame").focus();
  out.push("keys: " + ["ArrowDown", "ArrowDown", "ArrowRight", "ArrowUp", "ArrowRight", "ArrowRight", "ArrowLeft", "Home"].map(press).join(" "));
  out.push("stops: " + document.querySelectorAll('.frame[tabindex="0"]').length);
  document.title = out.join("\n");
})();
`

// TestInBrowser runs the page's script in a real browser, under the page's own
// policy.
func TestInBrowser(t *testing.T) {
	browser := chromium(t)
	d := sample()
	d.Sections[2].Components = append(d.Sections[2].Components, graph(), histogram())
	before := script
	script += driver
	defer func() { script = before }()
	got := regexp.MustCompile(`(?s)<title>(.*?)</title>`).FindStringSubmatch(dump(t, browser, render(t, d)))
	want := strings.Join([]string{
		"up: c b a", "down: b c a descending", "name: a b c", "printed: 1", "after: 0",
		"whole: all860 write516 copy258 write86 read344 copy172", "write: all860 write860 copy430 write143",
		"back: all860 write516 copy258 write86 read344 copy172", "found: 2 50.0 % of all",
		"keys: write copy write write read read write all", "stops: 1",
	}, "\n")
	if got == nil || got[1] != want {
		t.Errorf("got\n%v\nwant\n%s", got, want)
	}
}

// A script that is not the page's own does not run, whoever got it in.
func TestBrowserRefusesOtherScripts(t *testing.T) {
	browser := chromium(t)
	text := strings.Replace(render(t, sample()), "</body>", `<script>document.title = "run"</script></body>`, 1)
	got := dump(t, browser, text)
	if strings.Contains(got, "<title>run</title>") || !strings.Contains(got, `class="scripted"`) {
		t.Errorf("the page became %.300s", got)
	}
}

func chromium(t *testing.T) string {
	t.Helper()
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("needs Debian's package chromium, to see that the script works")
	}
	return browser
}

// dump what the browser made of a page.
func dump(t *testing.T, browser, text string) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "page.html")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--user-data-dir="+filepath.Join(dir, "profile"), "--dump-dom", "file://"+path)
	cmd.Env = append(os.Environ(), "HOME="+dir)
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, complaints.String())
	}
	return out.String()
}
