// SPDX-License-Identifier: Apache-2.0

package kernelbroker

import "strings"

// A job's AdminComment belongs to the site. The product has one part of it, which records what the job requested at
// submit: job_submit.lua keeps the parts of others when one is written.
const (
	commentPrefix    = "kernel-broker: "
	commentRequested = " requested"
	// commentNoRequeue is the suffix for a job submitted with --no-requeue.
	commentNoRequeue = "; norequeue"
	commentProfiling = "; profiling="
	// commentSeparator stands between parts.
	commentSeparator = " | "
	// commentWaits is the prefix for a requeued job.
	commentWaits = "requeued, waits for "
)

// Comment returns the product's part of the AdminComment, empty if there is none. Only Slurm administrators and the
// product can write an AdminComment. The last part that begins as ours does is ours: a site's text may quote it.
func (j SlurmJob) Comment() string {
	own := ""
	for part := range strings.SplitSeq(j.AdminComment, commentSeparator) {
		if strings.HasPrefix(part, commentPrefix) {
			own, _, _ = strings.Cut(part, "\n")
		}
	}
	return own
}

// Requested returns the profile that job_submit.lua noted for a waiting job.
func (j SlurmJob) Requested() (Ref, bool) {
	text, ok := strings.CutPrefix(j.Comment(), commentPrefix)
	if !ok {
		return Ref{}, false
	}
	name, _, ok := strings.Cut(text, commentRequested)
	if again, waits := strings.CutPrefix(text, commentWaits); waits {
		name, _, ok = strings.Cut(again, ":")
	}
	if !ok {
		return Ref{}, false
	}
	ref, err := ParseRef(name)
	return ref, err == nil && !ref.IsStock()
}

// Submitted reports whether job_submit.lua has seen the job.
func (j SlurmJob) Submitted() bool { return j.Comment() != "" }

// SaidNoRequeue reports whether the user gave --no-requeue.
func (j SlurmJob) SaidNoRequeue() bool { return strings.HasSuffix(j.Comment(), commentNoRequeue) }

// Profiling returns the list of collectors that job_submit.lua noted, as it was
// written, and whether there was one.
func (j SlurmJob) Profiling() (list string, asked bool) {
	_, list, asked = strings.Cut(j.Comment(), commentProfiling)
	list, _, _ = strings.Cut(list, ";")
	return list, asked
}

// Comment is what the product says of a job in its AdminComment. All of it is composed here.
type Comment struct {
	Text string
	// Collectors and NoRequeue are what the job requested at submit: a job that is requeued is asked again.
	Collectors []string
	NoRequeue  bool
}

// String is the product's part of the AdminComment, where Profiling and SaidNoRequeue find the request.
func (c Comment) String() string {
	text := OnePart(c.Text)
	// A text may quote what a node says, and asks for nothing.
	text = strings.ReplaceAll(text, commentProfiling, "; profiling ")
	for strings.HasSuffix(text, commentNoRequeue) {
		text = strings.TrimSuffix(text, commentNoRequeue)
	}
	if len(c.Collectors) > 0 {
		text += commentProfiling + strings.Join(c.Collectors, ",")
	}
	if c.NoRequeue {
		text += commentNoRequeue
	}
	return text
}

// Waits is the text for a requeued job that still waits for its request.
func Waits(requested Ref, why string) string { return commentWaits + requested.String() + ": " + why }

// KeepRequest returns a new comment that keeps what the job requested at submit.
func (j SlurmJob) KeepRequest(text string) string {
	c := Comment{Text: text, NoRequeue: j.SaidNoRequeue()}
	if list, asked := j.Profiling(); asked {
		c.Collectors = []string{list}
	}
	return c.String()
}

// OnePart makes a comment one line without separators, so that it is one part of the AdminComment, and the product's.
func OnePart(comment string) string {
	comment = strings.ReplaceAll(comment, "\n", "; ")
	// Repeat: replacing one separator can create another.
	for strings.Contains(comment, commentSeparator) {
		comment = strings.ReplaceAll(comment, commentSeparator, " / ")
	}
	if !strings.HasPrefix(comment, commentPrefix) {
		comment = commentPrefix + comment
	}
	return comment
}
