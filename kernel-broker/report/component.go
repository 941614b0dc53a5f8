// SPDX-License-Identifier: Apache-2.0

package report

// Paragraph of plain text.
type Paragraph string

func (Paragraph) template() string { return "paragraph" }

// Mood of a notice. A word shows it as well as a colour.
type Mood string

// The moods.
const (
	Good    Mood = "good"
	Neutral Mood = "neutral"
	Bad     Mood = "bad"
)

// Notice is a boxed sentence that should not be overlooked.
type Notice struct {
	Mood  Mood
	Title string
	Text  string
}

func (Notice) template() string { return "notice" }

// Class of the box; an unknown mood is neutral.
func (n Notice) Class() string {
	switch n.Mood {
	case Good, Bad:
		return "notice " + string(n.Mood)
	case Neutral:
	}
	return "notice neutral"
}

// List of plain texts.
type List []string

func (List) template() string { return "list" }

// Facts are names with their values.
type Facts []Fact

// Fact is one of them. Code is set in a fixed width: digests, flags, paths.
type Fact struct {
	Name string
	Text string
	Code bool
}

func (Facts) template() string { return "facts" }

// Folded parts are shown when asked for, and always on paper.
type Folded struct {
	Title      string
	Components []Component
}

func (Folded) template() string { return "folded" }
