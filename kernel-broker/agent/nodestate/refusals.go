// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// refusalsFile is where the gate notes, beside node.state, what it refused.
const refusalsFile = "gate.refusals"

// Refusals reads what the gate refused in the boot named, oldest first. There
// is seldom a file; lines that are none are passed over.
func Refusals(nodeState, bootID string) []kb.GateRefusal {
	path := filepath.Join(filepath.Dir(nodeState), refusalsFile)
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, maxSize))
	if err != nil {
		return nil
	}
	var refusals []kb.GateRefusal
	for line := range strings.Lines(string(text)) {
		if r, boot, ok := parseRefusal(line); ok && boot == bootID {
			refusals = append(refusals, r)
		}
	}
	return refusals
}

// parseRefusal reads "boot_id=ID time=SECONDS job=ID cause=TEXT".
func parseRefusal(line string) (r kb.GateRefusal, boot string, ok bool) {
	head, cause, found := strings.Cut(strings.TrimSuffix(line, "\n"), " cause=")
	words := strings.Split(head, " ")
	if !found || len(words) != 3 || !strings.HasSuffix(line, "\n") {
		return r, "", false
	}
	boot, isBoot := strings.CutPrefix(words[0], "boot_id=")
	when, isTime := strings.CutPrefix(words[1], "time=")
	who, isJob := strings.CutPrefix(words[2], "job=")
	seconds, err := strconv.ParseInt(when, 10, 40)
	if err != nil || seconds <= 0 || number(who, &r.Job) != nil || boot == "" {
		return r, "", false
	}
	r.At, r.Cause = time.Unix(seconds, 0).UTC(), cause
	return r, boot, isBoot && isTime && isJob
}
