// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/build"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/graph"
	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
	"github.com/kernelbroker/kernelbroker/kernel-broker/report/kernelreport"
)

// Candidate is a kernel that was built, and what became of it.
type Candidate struct {
	Name string `json:"name"`
	// ID is the beginning of the image's digest.
	ID          string    `json:"id"`
	Made        time.Time `json:"made"`
	Release     string    `json:"release"`
	BuildID     string    `json:"build_id"`
	ImageDigest string    `json:"image_digest"`
	ImageSize   int64     `json:"image_size"`
	Application string    `json:"application,omitempty"`
	Description string    `json:"description"`
	// Outcome is empty when nothing was measured.
	Outcome kb.Outcome `json:"outcome,omitempty"`
	Reason  string     `json:"reason"`
	// Measured is what the report says for the catalog.
	Measured *kb.Measurement `json:"measured,omitempty"`
	// Console is the end of what a kernel said that failed.
	Console string `json:"console,omitempty"`
	// Kernel and Report are folders; the latter is empty when nothing was
	// measured.
	Kernel string `json:"kernel"`
	Report string `json:"report,omitempty"`
	// Published is NAME@VERSION, or empty.
	Published string `json:"published,omitempty"`
}

// Page is the HTML report.
func (c Candidate) Page() string { return filepath.Join(c.Report, pageFile) }

// JSON is the report for programs.
func (c Candidate) JSON() string { return filepath.Join(c.Report, reportFile) }

// Benefit reports whether the kernel may be published.
func (c Candidate) Benefit() bool { return c.Outcome == kb.OutcomeBenefit }

// finish notes the candidate, and publishes one that wins. It is done at the
// end of each build, and changes nothing where all was done before.
func (p *Pipeline) finish(ctx context.Context, w *graph.Work) error {
	manifest, err := build.ReadManifest(w.Need("kernel"))
	if err != nil {
		return err
	}
	candidate := p.candidate(manifest, w.Need("kernel"))
	candidate.Reason = "the recipe names no workload: nothing was measured"
	if p.Bench != nil {
		if err := p.judged(w, manifest, &candidate); err != nil {
			return err
		}
	}
	if before, err := p.Candidates.Get(candidate.Name, candidate.ID); err == nil {
		candidate.Made, candidate.Published = before.Made, before.Published
		if before.Benefit() && candidate.Outcome == kb.OutcomeNoBenefit && p.isCurrent(candidate) {
			// It is what jobs get today because it won, and it cannot beat
			// itself: what was found out then stands.
			candidate.Outcome, candidate.Reason, candidate.Report, candidate.Measured = before.Outcome, before.Reason, before.Report, before.Measured
		}
	}
	p.made = &candidate
	if p.SaveTraining != "" {
		if err := p.save(w, manifest, candidate); err != nil {
			return err
		}
	}
	if err := p.Candidates.Put(candidate); err != nil {
		return err
	}
	if !candidate.Benefit() || p.Publisher == nil {
		w.Say("%s stays a candidate: %s", candidate.ID, candidate.Reason)
		return nil
	}
	if candidate.Published, err = p.Publisher.Publish(ctx, candidate, w.Log); err != nil {
		return fmt.Errorf("publication: %w", err)
	}
	w.Say("published as %s", candidate.Published)
	return p.Candidates.Put(candidate)
}

// candidate describes a kernel that was built.
func (p *Pipeline) candidate(m build.Manifest, dir string) Candidate {
	c := Candidate{
		Name: p.Recipe.Name, ID: strings.TrimPrefix(m.Image.Digest, "sha256:")[:12], Made: time.Now().UTC().Truncate(time.Second),
		Release: m.Release, BuildID: m.BuildID, ImageDigest: m.Image.Digest, ImageSize: m.Image.Size,
		Description: p.Recipe.Description, Kernel: dir,
	}
	if p.Bench != nil {
		c.Application = p.Bench.Workload().Application
	}
	return c
}

// judged adds the verdict, and the last words of a kernel on which the workload
// failed.
func (p *Pipeline) judged(w *graph.Work, made build.Manifest, c *Candidate) error {
	var v verdict.Verdict
	if err := readJSON(filepath.Join(w.Need("verdict"), verdictFile), &v); err != nil {
		return err
	}
	c.Outcome, c.Reason, c.Report = v.Outcome, v.Reason, w.Need("report")
	text, err := os.ReadFile(c.JSON())
	if err != nil {
		return err
	}
	if c.Measured, err = kernelreport.ReadMeasurement(text, made); err != nil {
		return err
	}
	for _, data := range []Data{Test, Train} {
		measured, err := ReadMeasured(w.Need(measuredAs(c.Name, data)), p.Bench.Workload())
		if err != nil {
			return err
		}
		if c.Console == "" {
			c.Console = measured.Console
		}
	}
	return nil
}

// isCurrent reports whether jobs get this very kernel today.
func (p *Pipeline) isCurrent(c Candidate) bool {
	if p.Current == "" {
		return false
	}
	manifest, err := build.ReadManifest(p.Current)
	return err == nil && manifest.Image.Digest == c.ImageDigest
}

// Candidates are kept as one small file each.
type Candidates struct {
	Dir string
}

var candidateID = regexp.MustCompile(`^[0-9a-f]{12}$`)

// Put replaces what is known of a candidate.
func (c Candidates) Put(candidate Candidate) error {
	if err := atomicfile.WriteJSON(filepath.Join(c.Dir, candidate.Name, candidate.ID+".json"), candidate, 0o644); err != nil {
		return fmt.Errorf("candidate %q: %w", candidate.Name, err)
	}
	return nil
}

func (c Candidates) Get(name, id string) (Candidate, error) {
	if err := kb.ValidateProfileName(name); err != nil {
		return Candidate{}, err
	}
	if !candidateID.MatchString(id) {
		return Candidate{}, fmt.Errorf("candidate %q: an id has 12 hex digits: %w", id, kb.ErrInvalid)
	}
	var candidate Candidate
	err := readJSON(filepath.Join(c.Dir, name, id+".json"), &candidate)
	if errors.Is(err, fs.ErrNotExist) {
		err = kb.ErrNotFound
	}
	if err != nil {
		return Candidate{}, fmt.Errorf("candidate %q of %q: %w", id, name, err)
	}
	return candidate, nil
}

// List has all candidates of a name, or of all names, the newest first.
func (c Candidates) List(name string) ([]Candidate, error) {
	pattern := "*"
	if name != "" {
		if err := kb.ValidateProfileName(name); err != nil {
			return nil, err
		}
		pattern = name
	}
	paths, err := filepath.Glob(filepath.Join(c.Dir, pattern, "*.json"))
	if err != nil {
		return nil, err
	}
	list := []Candidate{}
	for _, path := range paths {
		var candidate Candidate
		if err := readJSON(path, &candidate); err != nil {
			return nil, fmt.Errorf("candidates: %w", err)
		}
		list = append(list, candidate)
	}
	slices.SortFunc(list, func(a, b Candidate) int {
		return cmp.Or(b.Made.Compare(a.Made), strings.Compare(a.Name+a.ID, b.Name+b.ID))
	})
	return list, nil
}
