// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/hostlist"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/scontrol"
)

// View polls slurmctld for its nodes, the unfinished jobs, and the product's own reservations. With comments, it adds
// the AdminComment to the first pending jobs that requested a boot.
//
// The nodes come first: of a job that begins between the queries, the view has the job and not yet its boot. Its nodes are
// asked for again. The other way round they would look as if Slurm booted them for nobody.
func (c *Client) View(ctx context.Context, comments bool) (kb.SlurmView, error) {
	view := kb.SlurmView{At: c.now(), Jobs: map[uint32]kb.SlurmJob{}}
	view.ResumeTimeout = c.resumeTimeout(ctx)
	var err error
	if view.Nodes, err = c.Nodes(ctx, nil); err != nil {
		return view, err
	}
	jobs, _, err := c.run(ctx, c.squeue, "--noheader", "--array", "--all", "--Format="+jobFormat())
	if err != nil {
		return view, err
	}
	all, err := parseJobs(jobs)
	if err != nil {
		return view, err
	}
	for _, job := range all {
		switch {
		case job.State == "PENDING":
			view.Queue = append(view.Queue, job)
		default:
			view.Jobs[job.ID] = job
		}
	}
	if err := c.lookAgain(ctx, view); err != nil {
		return view, err
	}
	if view.NodeFailed, err = c.nodeFailed(ctx, view.Nodes); err != nil {
		return view, err
	}
	if view.Reservations, err = c.reservations(ctx); err != nil || !comments {
		return view, err
	}
	view.Commented = true
	if err := c.rank(ctx, view.Queue); err != nil {
		return view, err
	}
	return view, c.comment(ctx, view.Queue)
}

// lookAgain replaces what the view has of nodes whose job began after they were asked for.
func (c *Client) lookAgain(ctx context.Context, view kb.SlurmView) error {
	begun := view.Begun()
	if len(begun) == 0 {
		return nil
	}
	nodes, err := c.Nodes(ctx, begun)
	maps.Copy(view.Nodes, nodes)
	return err
}

// nodeFailed are the jobs that ended since a node failed, if it matters for any node whether it was set down.
func (c *Client) nodeFailed(ctx context.Context, nodes map[string]kb.SlurmNode) (map[uint32]bool, error) {
	asked := false
	for _, n := range nodes {
		asked = asked || n.RebootIssued() && n.Foreign()
	}
	if !asked {
		return nil, nil
	}
	out, _, err := c.run(ctx, c.squeue, "--noheader", "--array", "--all", "--states=NODE_FAIL", fmt.Sprintf("--Format=JobID:%d", scontrol.IDWidth))
	if err != nil {
		return nil, err
	}
	failed := map[uint32]bool{}
	for _, word := range strings.Fields(out) {
		id, err := strconv.ParseUint(word, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("squeue line %.200q is no job's id: %w", word, kb.ErrUnavailable)
		}
		failed[uint32(id)] = true
	}
	return failed, nil
}

// rank fills in the tiers of jobs that wait.
func (c *Client) rank(ctx context.Context, queue []kb.SlurmJob) error {
	if len(queue) < 2 {
		return nil // nothing to compare
	}
	out, _, err := c.run(ctx, c.scontrol, "--oneliner", "--all", "show", "partition")
	if err != nil {
		return err
	}
	tiers := map[string]uint32{}
	for line := range strings.Lines(out) {
		name := ""
		for _, word := range strings.Fields(line) {
			switch key, value, _ := strings.Cut(word, "="); key {
			case "PartitionName":
				name = value
			case "PriorityTier":
				if tier, err := strconv.ParseUint(value, 10, 16); err == nil {
					tiers[name] = uint32(tier)
				}
			}
		}
	}
	for i, j := range queue {
		for _, partition := range j.Partitions() {
			queue[i].Tier = max(queue[i].Tier, tiers[partition])
		}
	}
	return nil
}

// Nodes reads these nodes from slurmctld, or all of them.
func (c *Client) Nodes(ctx context.Context, names []string) (map[string]kb.SlurmNode, error) {
	args := []string{"--oneliner", "--all", "show", "node"}
	if len(names) > 0 {
		args = append(args, strings.Join(names, ","))
	}
	room := len(names)
	if room == 0 {
		room = c.rows.size()
	}
	nodes := make(map[string]kb.SlurmNode, room)
	err := c.runner.Lines(ctx, func(line []byte) {
		if node, ok := c.rows.read(line); ok {
			nodes[node.Name] = node
		}
	}, c.scontrol, args...)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		c.rows.keep(nodes)
	}
	return nodes, nil
}

func (c *Client) reservations(ctx context.Context) ([]kb.SlurmReservation, error) {
	out, _, err := c.run(ctx, c.scontrol, "--oneliner", "show", "reservation")
	if err != nil {
		return nil, err
	}
	var list []kb.SlurmReservation
	for line := range strings.Lines(out) {
		if r, ok := parseReservation(line); ok {
			list = append(list, r)
		}
	}
	return list, nil
}

func parseReservation(line string) (kb.SlurmReservation, bool) {
	var r kb.SlurmReservation
	for _, word := range strings.Fields(line) {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "ReservationName":
			r.Name = value
		case "Nodes":
			if names, err := hostlist.Expand(value); err == nil {
				r.Nodes = names
			}
		}
	}
	reference, ours := strings.CutPrefix(r.Name, kb.ReservationPrefix)
	r.Job = reference
	return r, ours
}

// commentedJobs is how many jobs at the head of the queue are read in detail.
const commentedJobs = 16

// comment fills in the AdminComment and the demand of the first jobs that requested a boot. Tasks that never started
// share their array's.
func (c *Client) comment(ctx context.Context, queue []kb.SlurmJob) error {
	sort.SliceStable(queue, func(i, k int) bool { return queue[i].Before(queue[k]) })
	var ids []uint32
	var names []string
	for _, j := range queue {
		if j.Reboot && j.Pending() && !slices.Contains(ids, j.ID) && len(ids) < commentedJobs {
			ids, names = append(ids, j.ID), append(names, j.Reference)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	list := strings.Join(names, ",")
	out, _, err := c.run(ctx, c.squeue, append([]string{"--array"}, scontrol.AskText(scontrol.CommentField, list, scontrol.TextWidth)...)...)
	if err != nil {
		return err
	}
	demands, err := c.demands(ctx, ids, list)
	if err != nil {
		return err
	}
	for i := range queue {
		if id := queue[i].ID; slices.Contains(ids, id) && queue[i].Reboot && queue[i].Pending() {
			queue[i].AdminComment, err = parseAdminComment(out, id)
			if errors.Is(err, scontrol.ErrCut) {
				queue[i].AdminComment, err = c.AdminComment(ctx, id)
			}
			// A job that began meanwhile is not there: a task has an id of its own then. Nor is one known that cannot be read.
			if errors.Is(err, scontrol.ErrNotThere) || errors.Is(err, scontrol.ErrCut) {
				continue
			}
			if err != nil {
				return err
			}
			queue[i].Demand = demands[id]
		}
	}
	return nil
}

// AdminComment reads one job's AdminComment, which users cannot write. It has its own query: scontrol prints it among
// the user's fields, and not at all if empty, so a user could forge one.
func (c *Client) AdminComment(ctx context.Context, job uint32) (string, error) {
	comments, err := scontrol.Comments(job, func(arguments ...string) (string, error) {
		return c.inTurn(ctx, scontrol.CommentField, job, arguments)
	})
	if err != nil {
		return "", err
	}
	return agreed(comments), nil
}

func parseAdminComment(out string, job uint32) (string, error) {
	comments, err := scontrol.Texts(out, job, scontrol.TextWidth)
	if err != nil {
		return "", err
	}
	return agreed(comments), nil
}

// agreed is a job's comment. Pending tasks of an array share their id; if their comments differ, the result is empty.
func agreed(comments []string) string {
	for _, comment := range comments {
		if comment != comments[0] {
			return ""
		}
	}
	return strings.TrimSpace(comments[0])
}

// column has a fixed width: a value that fills it may be cut.
type column struct {
	name  string
	width int
}

// widthOf columns side by side, in bytes.
func widthOf(columns []column) (width int) {
	for _, c := range columns {
		width += c.width
	}
	return width
}

// valuesOf splits a row into its columns, without the blanks behind each.
func valuesOf(row string, columns []column) []string {
	values := make([]string, len(columns))
	for i, c := range columns {
		values[i], row = strings.TrimRight(row[:c.width], " "), row[c.width:]
	}
	return values
}

// squeue has two column syntaxes, each with columns that the other lacks. Users cannot write free text into any of
// these.
var (
	letters = []column{{"A", scontrol.IDWidth}, {"n", 512}, {"x", 512}, {"f", 256}, {"c", 16}, {"C", 16}, {"m", 24},
		{"E", 64}, {"W", 64}, {"b", 64}, {"z", 24}, {"X", 8}, {"d", 16}}
	words = []column{{"JobID", scontrol.IDWidth}, {"Contiguous", 8}, {"tres-per-job", 64}, {"tres-per-socket", 64}, {"tres-per-task", 64}}
)

// demands returns what jobs require of their nodes, which are named in the list.
func (c *Client) demands(ctx context.Context, jobs []uint32, list string) (map[uint32]*kb.SlurmDemand, error) {
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
		out, _, err := c.run(ctx, c.squeue, "--noheader", "--array", "--all", "--states=all", "--noconvert", "--jobs="+list, ask.format)
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
	width := widthOf(columns)
	for out != "" {
		if len(out) <= width || out[width] != '\n' {
			return fmt.Errorf("squeue printed %.80q, and not a row of %d bytes: %w", out, width, kb.ErrUnavailable)
		}
		values, cut := valuesOf(out[:width], columns), ""
		out = out[width+1:]
		for i, c := range columns {
			if len(values[i]) == c.width {
				cut = fmt.Sprintf("%.40q, which may be cut", values[i])
			}
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
