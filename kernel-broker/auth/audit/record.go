// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kinds of records that the package itself writes.
const (
	// KindRotated is the first record of each file but the first.
	KindRotated = "rotated"
	// KindRecovered says what an earlier writer's end left missing, or a failed
	// sync uncertain.
	KindRecovered = "recovered"
	// KindUnsynced is of earlier versions: which records the writer before left
	// without knowing them on the disk. It is no sign of anything wrong.
	KindUnsynced = "unsynced"
	// KindWitnessed says what was on disk of another broker's chain: its name is the object, and its head stated.
	KindWitnessed = "witnessed"
)

// Entry is what happened, as the writer of the record describes it.
type Entry struct {
	// Kind says what sort of record this is, in one word.
	Kind string `json:"kind"`
	// Who, with the uid if there is one, by what that is known, and from where.
	Who  string  `json:"who,omitempty"`
	UID  *uint32 `json:"uid,omitempty"`
	By   string  `json:"by,omitempty"`
	From string  `json:"from,omitempty"`
	// Action on an object, and the method or the job that it came by.
	Action string `json:"action,omitempty"`
	Object string `json:"object,omitempty"`
	Via    string `json:"via,omitempty"`
	// Allowed or not, and why. Stated is the reason that the caller gave.
	Allowed *bool  `json:"allowed,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Stated  string `json:"stated,omitempty"`
	// Outcome of what was allowed: "ok" or an error. Of is the number of the
	// record of the decision, where the outcome has one of its own.
	Outcome string `json:"outcome,omitempty"`
	Of      uint64 `json:"of,omitempty"`
	// Unrecorded is how many events like this one were not recorded before it.
	Unrecorded uint64 `json:"unrecorded,omitempty"`
}

// record is one line.
type record struct {
	Seq  uint64    `json:"seq"`
	Prev string    `json:"prev"`
	At   time.Time `json:"at"`
	Entry
	// Torn is of earlier versions: the lines before this one that are no records.
	Torn []any `json:"torn,omitempty"`
}

const (
	// maxText of one part of an entry, and maxReason of one that says what
	// became of it: users, nodes and unauthenticated callers write some of the first, and the
	// second quote them. No name of the domain is as long.
	maxText   = 200
	maxReason = 400
	// maxLine is longer than any record can get, or ever could.
	maxLine = 64 << 10
)

// genesis is what the first line of all carries as the digest before it.
var genesis = strings.Repeat("0", 2*sha256.Size)

func digest(line []byte) string {
	sum := sha256.Sum256(line)
	return hex.EncodeToString(sum[:])
}

// clipped has no text that is longer than a record's may be, and in none of
// them what is not plain to read.
func (e Entry) clipped() Entry {
	for _, text := range []*string{&e.Who, &e.By, &e.From, &e.Action, &e.Object, &e.Via, &e.Stated} {
		*text = clip(*text, maxText)
	}
	e.Reason, e.Outcome = clip(e.Reason, maxReason), clip(e.Outcome, maxReason)
	return e
}

// encode makes the line, without its end. No browser shows it: what HTML
// escapes would be six times as long, and harder to search for.
func (r record) encode() ([]byte, error) {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(r); err != nil {
		return nil, fmt.Errorf("audit record %d: %w", r.Seq, err)
	}
	return bytes.TrimSuffix(line.Bytes(), []byte("\n")), nil
}

// clip makes a text printable ASCII of at most so many bytes.
func clip(text string, most int) string {
	// A character has four bytes at most, and is one behind this.
	cut := len(text) > 4*most
	if cut {
		text = text[:4*most]
	}
	text = strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return '?'
		}
		return c
	}, text)
	if cut || len(text) > most {
		return text[:min(len(text), most)] + "..."
	}
	return text
}

// decode reads a line. Fields of a later version are no mistake: the digest
// covers them.
func decode(line []byte) (record, error) {
	var r record
	if err := json.Unmarshal(line, &r); err != nil {
		return record{}, err
	}
	if r.Seq == 0 || len(r.Prev) != len(genesis) || r.Kind == "" || r.At.IsZero() {
		return record{}, fmt.Errorf("no number, no digest of the line before, no kind or no time")
	}
	return r, nil
}

// Head is the last line of a log.
type Head struct {
	Seq    uint64
	Digest string
}

// String is the form that a head has in its file and on command lines.
func (h Head) String() string { return fmt.Sprintf("%d:%s", h.Seq, h.Digest) }

var headText = regexp.MustCompile(`^(0|[1-9]\d{0,18}):([0-9a-f]{64})$`)

// ParseHead is the inverse of String.
func ParseHead(text string) (Head, error) {
	parts := headText.FindStringSubmatch(strings.TrimSpace(text))
	if parts == nil {
		return Head{}, fmt.Errorf("head %q is not NUMBER:DIGEST, a record's number and its SHA-256 digest in hex", text)
	}
	n, err := strconv.ParseUint(parts[1], 10, 64)
	return Head{Seq: n, Digest: parts[2]}, err
}

const (
	headName = "head"
	lockName = "lock"
)

var fileName = regexp.MustCompile(`^audit-(\d{12})\.log$`)

func nameOf(first uint64) string { return fmt.Sprintf("audit-%012d.log", first) }

// firstOf is the number of the first line of a file by its name.
func firstOf(path string) (uint64, bool) {
	parts := fileName.FindStringSubmatch(filepath.Base(path))
	if parts == nil {
		return 0, false
	}
	n, err := strconv.ParseUint(parts[1], 10, 64)
	return n, err == nil
}

// logFiles returns the paths of a folder's files in their order.
func logFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	var paths []string
	for _, entry := range entries {
		if _, ours := firstOf(entry.Name()); ours {
			paths = append(paths, filepath.Join(dir, entry.Name()))
		}
	}
	slices.Sort(paths)
	return paths, nil
}

// readHead returns the head of a folder; nil when there is none.
func readHead(dir string) (*Head, error) {
	text, err := os.ReadFile(filepath.Join(dir, headName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	h, err := ParseHead(string(text))
	if err != nil {
		return nil, fmt.Errorf("audit log %q: %w", dir, err)
	}
	return &h, nil
}
