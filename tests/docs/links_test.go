// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mostWords that docs may have: nobody reads more.
const mostWords = 50_000

func TestDocsAreShort(t *testing.T) {
	all := 0
	for name, text := range markdown(t) {
		if strings.HasPrefix(name, "docs/") {
			all += len(strings.Fields(text))
		}
	}
	if all > mostWords {
		t.Errorf("docs has %d words, at most %d: shorten a page before you add to one", all, mostWords)
	}
}

// markdown has every page of the repository, records too.
func markdown(t *testing.T) map[string]string {
	t.Helper()
	all, top := map[string]string{}, root(t)
	for _, name := range files(t, "*.md") {
		text, err := os.ReadFile(filepath.Join(top, name))
		if os.IsNotExist(err) {
			continue // removed, and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(text)
	}
	return all
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} (.+)$`)
	fence   = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	noSlug  = regexp.MustCompile(`[^\p{L}\p{N}\s_-]`)
)

// anchors of a page, as GitHub makes them.
func anchors(text string) (all []string) {
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		title := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(m[1], "$1")
		all = append(all, strings.ReplaceAll(noSlug.ReplaceAllString(strings.ToLower(title), ""), " ", "-"))
	}
	return all
}

// linksOf a page to other files and headings: each with the file that it leads to, and the heading.
func linksOf(name, text string) (all []struct{ said, to, anchor string }) {
	for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
			continue
		}
		to, anchor, _ := strings.Cut(m[1], "#")
		if to == "" {
			to = name
		} else {
			to = path.Join(path.Dir(name), to)
		}
		all = append(all, struct{ said, to, anchor string }{m[1], to, anchor})
	}
	return all
}

// Every link leads to a file that is there, and to a heading that it has.
func TestLinks(t *testing.T) {
	all, seen, top := markdown(t), 0, root(t)
	for name, text := range all {
		for _, l := range linksOf(name, text) {
			seen++
			if _, err := os.Stat(filepath.Join(top, l.to)); err != nil {
				t.Errorf("%s: %s: there is no %s", name, l.said, l.to)
			} else if target, is := all[l.to]; is && l.anchor != "" && !slices.Contains(anchors(target), l.anchor) {
				t.Errorf("%s: %s: %s has no such heading", name, l.said, l.to)
			}
		}
	}
	if seen < 200 {
		t.Errorf("only %d links were found", seen)
	}
}

// The questions of a newcomer are answered by a page that README names, or that a page names which README names.
func TestTwoSteps(t *testing.T) {
	all := markdown(t)
	reached := []string{"README.md"}
	for range 2 {
		for _, name := range slices.Clone(reached) {
			for _, l := range linksOf(name, all[name]) {
				reached = append(reached, l.to)
			}
		}
	}
	for name := range all {
		if strings.HasPrefix(name, "docs/") && !slices.Contains(reached, name) && !strings.HasPrefix(name, "docs/adr/0") {
			t.Errorf("%s is more than two steps from README.md", name)
		}
	}
	for question, answer := range map[string]struct{ page, anchor string }{
		"does it fit my site":     {"docs/faq.md", ""},
		"try it":                  {"docs/try.md", ""},
		"install":                 {"docs/ops/install.md", ""},
		"a job does not start":    {"docs/ops/troubleshooting.md", "a-job-that-does-not-start"},
		"what happened on a node": {"docs/ops/operate.md", "what-happened-on-a-node"},
		"offer a kernel":          {"docs/ops/operate.md", "offer-a-kernel"},
		"build a kernel":          {"docs/ops/kernels.md", ""},
		"upgrade":                 {"docs/ops/upgrade.md", ""},
		"contribute":              {"CONTRIBUTING.md", ""},
	} {
		if !slices.Contains(reached, answer.page) {
			t.Errorf("%s: %s is more than two steps from README.md", question, answer.page)
		}
		if answer.anchor != "" && !slices.Contains(anchors(all[answer.page]), answer.anchor) {
			t.Errorf("%s: %s has no heading %s", question, answer.page, answer.anchor)
		}
	}
}

var named = regexp.MustCompile("`((?:kernel-broker|slurm-plugin|tests|catalog|ansible|proto|packaging|docs|\\.ci)/[\\w./-]+)`")

// madeThere are files that a reader makes, or that stand for many.
var madeThere = []string{"catalog/kernels/ocean.yaml", "catalog/training/NAME.tar.zst", "catalog/kernels/NAME.yaml", "kernel-broker/agent/collect/NAME"}

// Every file and folder of the repository that a page names is there.
func TestNamedFilesExist(t *testing.T) {
	seen, top := 0, root(t)
	for name, text := range pages(t) {
		if name == "CHANGELOG.md" {
			continue // it names what was there
		}
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			if strings.HasSuffix(m[1], ".log") {
				continue // below a cluster's own folder
			}
			seen++
			for _, from := range []string{"", "slurm-plugin/include"} {
				if _, err := os.Stat(filepath.Join(top, from, m[1])); err == nil {
					m = nil
					break
				}
			}
			if m != nil && !slices.Contains(madeThere, m[1]) {
				t.Errorf("%s names %s, which is not there", name, m[1])
			}
		}
	}
	if seen < 40 {
		t.Errorf("only %d names were found", seen)
	}
}
