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
	began, printed time.Time
	first, done    int
	total          int
	state          State
}

// Observe is for Runner.Observe.
func (p *Printer) Observe(e Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case e.Step == "":
		p.clear()
		p.say("%s: %s", e.Run, p.ended(e))
	case e.State.Ended():
		p.drop(e.Step)
		p.say("%s [%d/%d] %s: %s", e.Run, e.Finished, e.Steps, e.Step, p.ended(e))
	default:
		p.advance(e)
	}
}

// advance shows that a step is still at work.
func (p *Printer) advance(e Event) {
	a := p.activity(e.Step)
	if a.state != e.State {
		a.state = e.State
		p.say("%s [%d/%d] %s: %s", e.Run, e.Finished, e.Steps, e.Step, begins(e))
	}
	if e.Done == 0 && e.Total == 0 {
		return
	}
	if a.total == 0 && a.done == 0 {
		// What was done before the first report says nothing about speed.
		a.first, a.began, a.printed = e.Done, time.Now(), time.Now()
	}
	a.done, a.total = e.Done, max(e.Total, 0)
	if p.Terminal {
		p.draw(e)
		return
	}
	if now := time.Now(); now.Sub(a.printed) >= cmp.Or(p.Every, 10*time.Second) {
		a.printed = now
		p.say("%s [%d/%d] %s: %s", e.Run, e.Finished, e.Steps, e.Step, a.far())
	}
}

func (p *Printer) activity(step string) *activity {
	if i := p.find(step); i >= 0 {
		return p.active[i]
	}
	a := &activity{step: step, began: time.Now(), printed: time.Now()}
	p.active = append(p.active, a)
	return a
}

func (p *Printer) find(step string) int {
	return slices.IndexFunc(p.active, func(a *activity) bool { return a.step == step })
}

func (p *Printer) drop(step string) {
	i := p.find(step)
	if i < 0 {
		return
	}
	if i == 0 {
		p.clear()
	}
	p.active = slices.Delete(p.active, i, i+1)
}

// far says how far a step is and how long it will take.
func (a *activity) far() string {
	if a.total == 0 {
		return fmt.Sprintf("%d done", a.done)
	}
	text := fmt.Sprintf("%d of %d (%d %%)", a.done, a.total, 100*a.done/a.total)
	if left, known := a.left(time.Now()); known {
		text += ", about " + rough(left) + " left"
	}
	return text
}

// left is the time that the rest takes at the speed so far.
func (a *activity) left(now time.Time) (time.Duration, bool) {
	did, rest := a.done-a.first, a.total-a.done
	if did <= 0 || rest < 0 {
		return 0, false
	}
	return time.Duration(float64(now.Sub(a.began)) / float64(did) * float64(rest)), true
}

// draw moves the bar, which belongs to the step that began first.
func (p *Printer) draw(e Event) {
	if p.active[0].step != e.Step {
		return
	}
	if p.bar == nil {
		length := e.Total
		if length == 0 {
			length = -1
		}
		p.bar = progressbar.NewOptions(length,
			progressbar.OptionSetWriter(p.Out),
			progressbar.OptionSetDescription(fmt.Sprintf("%s [%d/%d] %s", e.Run, e.Finished, e.Steps, e.Step)),
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

func (p *Printer) say(format string, args ...any) {
	if p.bar != nil {
		_ = p.bar.Clear() // it is drawn again with its next change
	}
	fmt.Fprintf(p.Out, format+"\n", args...)
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

func (p *Printer) ended(e Event) string {
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
