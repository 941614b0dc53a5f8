// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// command is a command in a text.
type command struct {
	where string // file and line
	words []string
	// sentence: it is part of a sentence and may be incomplete; name: it is only a name.
	sentence, name bool
}

func (c command) String() string { return c.where + ": " + strings.Join(c.words, " ") }

// option is the command's long or short option without its value; the value is empty if it is the next word.
func option(word string) (name, value string, is bool) {
	if !strings.HasPrefix(word, "-") || word == "-" || word == "--" {
		return "", "", false
	}
	name, value, _ = strings.Cut(word, "=")
	return name, value, true
}

// root of the repository.
func root(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// files are the repository's, by git's patterns.
func files(t *testing.T, patterns ...string) []string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"ls-files", "--cached", "--others", "--exclude-standard"}, patterns...)...)
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}

// pages that people read.
func pages(t *testing.T) map[string]string {
	t.Helper()
	top := root(t)
	all := map[string]string{}
	for _, name := range files(t, "*.md", "*.8", "*.1", "ansible", "*.sample*") {
		switch filepath.Ext(name) {
		case ".md", ".8", ".1":
		default:
			continue
		}
		// Records of past runs are no instructions.
		if strings.HasPrefix(name, "docs/adr/") || strings.HasPrefix(name, "docs/benchmarks/") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(top, name))
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(text)
	}
	if len(all) < 10 {
		t.Fatalf("only %d pages were found", len(all))
	}
	return all
}

// found are all commands of a program in the pages and in kernelctl's help.
func found(t *testing.T, programs ...string) []command {
	t.Helper()
	var all []command
	for name, text := range pages(t) {
		if strings.HasSuffix(name, ".md") {
			all = append(all, inMarkdown(name, text)...)
		} else {
			all = append(all, inManual(name, text)...)
		}
	}
	all = append(all, inHelp()...)
	var of []command
	for _, c := range all {
		for _, program := range programs {
			if c.words[0] == program {
				of = append(of, c)
			}
		}
	}
	return of
}

var (
	prompt = regexp.MustCompile(`^\s*([a-z0-9]*[$#] )?`)
	span   = regexp.MustCompile("`([^`]+)`")
	// elsewhere is a comment behind a command.
	elsewhere = regexp.MustCompile(`\s+#\s.*$`)
	// between commands of one line.
	between = regexp.MustCompile(`\s+(\||&&|;)\s+|;\s`)
	// maybe is what may be left out.
	maybe = regexp.MustCompile(`\s?\[[^\]\s][^\]]*\]`)
)

func inMarkdown(name, text string) (all []command) {
	fenced, held := false, ""
	for number, line := range strings.Split(text, "\n") {
		where := name + ":" + strconv.Itoa(number+1)
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		if !fenced {
			for _, s := range span.FindAllStringSubmatch(line, -1) {
				all = append(all, commands(where, strings.ReplaceAll(s[1], `\|`, "|"), true)...)
			}
			continue
		}
		if rest, goesOn := strings.CutSuffix(held+line, `\`); goesOn {
			held = rest + " "
			continue
		}
		all = append(all, commands(where, prompt.ReplaceAllString(held+line, ""), false)...)
		held = ""
	}
	return all
}

// inManual are commands of manual pages, each in its own bold or literal text.
func inManual(name, text string) (all []command) {
	plain := strings.NewReplacer(`\-`, "-", `\fB`, "`", `\fR`, "`", `\fP`, "`", `\fI`, "", `\(aq`, "'", `\&`, "").Replace(text)
	for number, line := range strings.Split(plain, "\n") {
		where := name + ":" + strconv.Itoa(number+1)
		if rest, is := strings.CutPrefix(line, ".B "); is {
			line = "`" + rest + "`"
		}
		for _, s := range span.FindAllStringSubmatch(line, -1) {
			all = append(all, commands(where, s[1], true)...)
		}
	}
	return all
}

// commands are those of one line: a pipeline has several, and what is in brackets
// makes two.
func commands(where, line string, named bool) (all []command) {
	line = elsewhere.ReplaceAllString(line, "")
	for _, one := range between.Split(line, -1) {
		variants := []string{one}
		if short := maybe.ReplaceAllString(one, ""); short != one {
			variants = []string{short, strings.NewReplacer("[", "", "]", "").Replace(one)}
		}
		for _, v := range variants {
			words := split(v)
			for len(words) > 0 && (words[0] == "sudo" || strings.Contains(words[0], "=") && !strings.HasPrefix(words[0], "-")) {
				words = words[1:]
			}
			if len(words) > 0 {
				all = append(all, command{where: where, words: words, sentence: named, name: named && !full(words)})
			}
		}
	}
	return all
}

// full reports whether a command in a sentence says more than its name: it has an
// option, or a word that stands for something.
func full(words []string) bool {
	for _, w := range words[1:] {
		if strings.HasPrefix(w, "-") || strings.ToLower(w) != w || strings.ContainsAny(w, "@/.0123456789") {
			return true
		}
	}
	return false
}

// split makes words as a shell does, as far as people write them; what is
// redirected is left out.
func split(line string) (words []string) {
	var word strings.Builder
	inside, began := rune(0), false
	end := func() {
		if began {
			words = append(words, word.String())
		}
		word.Reset()
		began = false
	}
	for _, c := range line {
		switch {
		case inside != 0 && c == inside:
			inside = 0
		case inside != 0:
			word.WriteRune(c)
		case c == '\'' || c == '"':
			inside, began = c, true
		case c == ' ' || c == '\t':
			end()
		case c == '>' || c == '<':
			if word.Len() > 0 && strings.Trim(word.String(), "0123456789") != "" {
				end()
			}
			return words
		default:
			word.WriteRune(c)
			began = true
		}
	}
	end()
	return words
}
