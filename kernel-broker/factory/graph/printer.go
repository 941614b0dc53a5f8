// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
)

// Printer shows how a run goes: a line when a step begins and ends,
// and in between a bar on a terminal, and now and then a line elsewhere.
type Printer struct {
	Out      io.Writer
	Terminal bool
	// Every is the time between lines where there is no terminal; 0: 10 s.
	Every time.Duration

	mu     sync.Mutex
	active []*activity // the first has the bar
	bar    *progressbar.ProgressBar
}

// activity is a step that is being worked on.
type activity struct {
	step           string
	state          State
	began, printed time.Time
	first          int // units that were done at the first report
}

// Observe is for Runner.Observe.
func (p *Printer) Observe(e Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.Name == "" {
		p.clear()
		p.say(e.Run, ended(e))
		return
	}
	i := slices.IndexFunc(p.active, func(a *activity) bool { return a.step == e.Name })
	if e.State.Ended() {
		if i == 0 {
			p.clear()
		}
		if i >= 0 {
			p.active = slices.Delete(p.active, i, i+1)
		}
		p.say(place(e), ended(e))
		return
	}
	if i < 0 {
		i = len(p.active)
		p.active = append(p.active, &activity{step: e.Name})
	}
	p.advance(p.active[i], e)
}

// advance shows that a step is still at work.
func (p *Printer) advance(a *activity, e Event) {
	now := time.Now()
	if a.state != e.State {
		a.state = e.State
		p.say(place(e), begins(e))
	}
	if e.Done == 0 && e.Total == 0 {
		return
	}
	if a.began.IsZero() {
		// What was done before the first report says nothing about speed.
		a.first, a.began, a.printed = e.Done, now, now
	}
	switch {
	case p.Terminal && a == p.active[0]:
		p.draw(e)
	case !p.Terminal && time.Since(a.printed) >= cmp.Or(p.Every, 10*time.Second):
		a.printed = now
		p.say(place(e), a.far(e.Done, e.Total))
	}
}

func place(e Event) string { return fmt.Sprintf("%s [%d/%d] %s", e.Run, e.Finished, e.Steps, e.Name) }

// far says how far a step is and how long it will take.
func (a *activity) far(done, total int) string {
	if total <= 0 {
		return fmt.Sprintf("%d done", done)
	}
	text := fmt.Sprintf("%d of %d (%d %%)", done, total, 100*done/total)
	if left, known := a.left(time.Now(), done, total); known {
		text += ", about " + rough(left) + " left"
	}
	return text
}

// left is the time that the rest takes at the speed so far.
func (a *activity) left(now time.Time, done, total int) (time.Duration, bool) {
	did, rest := done-a.first, total-done
	if did <= 0 || rest < 0 {
		return 0, false
	}
	return time.Duration(float64(now.Sub(a.began)) / float64(did) * float64(rest)), true
}

// draw moves the bar, which belongs to the step that began first.
func (p *Printer) draw(e Event) {
	if p.bar == nil {
		p.bar = progressbar.NewOptions(cmp.Or(e.Total, -1),
			progressbar.OptionSetWriter(p.Out),
			progressbar.OptionSetDescription(place(e)),
			progressbar.OptionShowCount(),
			progressbar.OptionSetWidth(30),
			progressbar.OptionSetPredictTime(true),
			progressbar.OptionThrottle(200*time.Millisecond),
			progressbar.OptionClearOnFinish(),
		)
	}
	if e.Total > 0 && e.Total != p.bar.GetMax() {
		p.bar.ChangeMax(e.Total)
	}
	_ = p.bar.Set(e.Done) // a bar that cannot be drawn stops no build
}

// clear takes the bar away.
func (p *Printer) clear() {
	if p.bar != nil {
		_ = p.bar.Clear() // as above
		p.bar = nil
	}
}

func (p *Printer) say(where, what string) {
	if p.bar != nil {
		_ = p.bar.Clear() // it is drawn again with its next change
	}
	fmt.Fprintf(p.Out, "%s: %s\n", where, what)
}

func begins(e Event) string {
	switch e.State {
	case Following:
		return "another build is at it, following (log: " + e.Log + ")"
	case Queued:
		return "job " + e.Job + " waits in Slurm"
	}
	if e.Job != "" {
		return "job " + e.Job + " runs (log: " + e.Log + ")"
	}
	return "begins (log: " + e.Log + ")"
}

func ended(e Event) string {
	switch {
	case e.State == Stopped:
		return "stopped"
	case e.Err != nil:
		// The caller prints the error itself, once, at the end.
		first, _, _ := strings.Cut(e.Err.Error(), "\n")
		return "failed after " + rough(e.Took) + ": " + first
	case e.Cached:
		return "done before"
	case e.Shared:
		return "done by another build"
	}
	return "done in " + rough(e.Took)
}

// rough writes a duration with few digits.
func rough(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 10*time.Minute:
		return d.Round(time.Second).String()
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}
