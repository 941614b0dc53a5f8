// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/hostlist"
)

// column has a fixed width: a value that fills it may be cut.
type column struct {
	name  string
	width int
}

// squeue has two column syntaxes, each with columns that the other lacks. Users cannot write free text into any of
// these.
var (
	letters = []column{{"A", idWidth}, {"n", 512}, {"x", 512}, {"f", 256}, {"c", 16}, {"C", 16}, {"m", 24},
		{"E", 64}, {"W", 64}, {"b", 64}, {"z", 24}, {"X", 8}, {"d", 16}}
	words = []column{{"JobID", idWidth}, {"Contiguous", 8}, {"tres-per-job", 64}, {"tres-per-socket", 64}, {"tres-per-task", 64}}
)

// demands returns what jobs require of their nodes.
func (c *Client) demands(ctx context.Context, jobs []uint32) (map[uint32]*kb.SlurmDemand, error) {
	all := map[uint32]*kb.SlurmDemand{}
	for _, id := range jobs {
		all[id] = &kb.SlurmDemand{}
	}
	short, long := make([]string, len(letters)), make([]string, len(words))
	for i, l := range letters {
		short[i] = fmt.Sprintf("%%%d%s", l.width, l.name)
	}
	for i, w := range words {
		long[i] = fmt.Sprintf("%s:%d", w.name, w.width)
	}
	for _, ask := range []struct {
		format  string
		columns []column
		take    func(*kb.SlurmDemand, []string)
	}{
		{"--format=" + strings.Join(short, ""), letters, takeLetters},
		{"--Format=" + strings.Join(long, ","), words, takeWords},
	} {
		out, _, err := c.run(ctx, c.squeue, "--noheader", "--array", "--all", "--states=all", "--noconvert", "--jobs="+listed(jobs), ask.format)
		if err != nil {
			return nil, err
		}
		if err := readColumns(out, ask.columns, all, ask.take); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// readColumns hands each job's values on. Tasks of an array that wait are alike.
func readColumns(out string, columns []column, all map[uint32]*kb.SlurmDemand, take func(*kb.SlurmDemand, []string)) error {
	width := 0
	for _, c := range columns {
		width += c.width
	}
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		if len(line) != width {
			return fmt.Errorf("squeue printed %.80q, a line of %d bytes, not %d: %w", line, len(line), width, kb.ErrUnavailable)
		}
		values, cut := make([]string, len(columns)), ""
		for i, c := range columns {
			values[i] = strings.TrimRight(line[:c.width], " ")
			if len(values[i]) == c.width {
				cut = fmt.Sprintf("%.40q, which may be cut", values[i])
			}
			line = line[c.width:]
		}
		id, err := strconv.ParseUint(values[0], 10, 32)
		if err != nil {
			return fmt.Errorf("squeue printed %.80q: %w", values[0], kb.ErrUnavailable)
		}
		if d := all[uint32(id)]; d != nil {
			take(d, values)
			if cut != "" {
				d.Unevaluated = cut
			}
		}
	}
	return nil
}

func takeLetters(d *kb.SlurmDemand, v []string) {
	d.Required, d.Excluded = nodesOf(d, v[1]), nodesOf(d, v[2])
	if features := named(v[3]); features != "" {
		d.Features = strings.FieldsFunc(features, func(r rune) bool { return r == '&' || r == ',' })
		if strings.ContainsAny(features, "|[]()*{}!") {
			d.Unevaluated = "features " + features
		}
	}
	d.CPUs, d.AllCPUs = amount(d, v[4]), amount(d, v[5])
	d.MemoryMiB = amount(d, strings.TrimSuffix(v[6], "M"))
	none(d, "a dependency", v[7])
	none(d, "licences", v[8])
	none(d, "generic resources", v[9])
	if v[10] != "*:*:*" {
		none(d, "sockets, cores and threads", v[10])
	}
	none(d, "specialised cores", v[11])
	none(d, "temporary disk", v[12])
}

func takeWords(d *kb.SlurmDemand, v []string) {
	none(d, "nodes side by side", v[1])
	for _, tres := range v[2:] {
		none(d, "generic resources", tres)
	}
}

// none records a doubt for a requirement that is not evaluated.
func none(d *kb.SlurmDemand, what, value string) {
	if value = named(value); value != "" && value != "0" && value != "OK" {
		d.Unevaluated = what + " " + value
	}
}

func nodesOf(d *kb.SlurmDemand, list string) []string {
	if named(list) == "" {
		return nil
	}
	nodes, err := hostlist.Expand(list)
	if err != nil {
		d.Unevaluated = err.Error()
	}
	return nodes
}

// amount reads a number; squeue prints plain ones without a unit.
func amount(d *kb.SlurmDemand, text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		d.Unevaluated = fmt.Sprintf("an amount of %q", text)
	}
	return n
}
