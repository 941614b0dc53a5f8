// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/hostlist"
)

// separator follows each field that Slurm makes itself; none of them can contain it.
const separator = "|"

// jobFields are squeue's columns that Slurm makes itself, whole; a pending job costs little. The node list is the last.
var jobFields = []string{
	"JobID", "ArrayJobID", "ArrayTaskID", "HetJobID", "HetJobOffset", "RestartCnt", "State", "UserID", "NumNodes",
	"PriorityLong", "Reboot", "Requeue", "NodeList",
}

// jobTexts are the columns that may hold any text, of fixed widths behind the others: the reason is a burst buffer's or a
// plugin's own words, with line breaks and separators. Lists that users can make long are cut.
var jobTexts = []column{{"UserName", 32}, {"Partition", 64}, {"Reservation", 64}, {"Reason", 64}}

// jobTextWidth is the length of a row's texts.
var jobTextWidth = widthOf(jobTexts)

func jobFormat() string {
	parts := make([]string, 0, len(jobFields)+len(jobTexts))
	for _, f := range jobFields {
		parts = append(parts, f+":0"+separator)
	}
	for _, c := range jobTexts {
		parts = append(parts, fmt.Sprintf("%s:%d", c.name, c.width))
	}
	return strings.Join(parts, ",")
}

// mostTasks is how many tasks of an array are kept that never started: they share their record, and are alike but for their
// numbers. The rest is in no hurry, and there may be hundreds of thousands.
const mostTasks = 256

// parseJobs reads squeue's rows. Of a row that does not end where it should, only the job's own fields are read, and the
// job is marked; the others go on at the next line that begins a row. Without a readable id nothing is known of any job.
func parseJobs(out string) (jobs []kb.SlurmJob, err error) {
	tasks := map[uint32]int{}
	for out != "" {
		job, length, err := parseJob(out)
		if err != nil {
			return nil, err
		}
		if tasks[job.ID]++; job.State != "PENDING" || tasks[job.ID] <= mostTasks {
			jobs = append(jobs, own(job))
		}
		if length == 0 {
			out = nextRow(out)
		} else {
			out = out[length:]
		}
	}
	return jobs, nil
}

// own copies a job's texts, so that it does not keep squeue's whole output in memory.
func own(job kb.SlurmJob) kb.SlurmJob {
	for _, text := range []*string{&job.Reference, &job.State, &job.User, &job.Partition, &job.Reservation, &job.Reason} {
		*text = strings.Clone(*text)
	}
	return job
}

// nextRow skips to the next line that begins a row.
func nextRow(out string) string {
	for {
		at := strings.IndexByte(out, '\n')
		if at < 0 {
			return ""
		}
		if out = out[at+1:]; out == "" {
			return ""
		}
		if _, _, err := parseJob(out); err == nil {
			return out
		}
	}
}

// parseJob reads the first of squeue's rows, and how long it is: 0 where it does not end where it should. A job of such a
// row has its own fields only, and one whose node list is unreadable no nodes; both say why in Unread.
func parseJob(out string) (job kb.SlurmJob, length int, err error) {
	last := len(jobFields) - 1
	fields := strings.SplitN(out, separator, len(jobFields)+1)
	if len(fields) <= last {
		return job, 0, unreadable(out, errFields)
	}
	for i := range fields[:last] {
		fields[i] = strings.TrimSpace(fields[i])
	}
	if job, err = ownFields(fields); err != nil {
		return job, 0, unreadable(out, err)
	}
	list := fields[last]
	if len(fields) == last+1 || strings.Contains(list, "\n") || len(fields[last+1]) <= jobTextWidth || fields[last+1][jobTextWidth] != '\n' {
		job.Unread = fmt.Sprintf("squeue's row of it, %.200q, has not the length that it should have", out)
		return job, 0, nil
	}
	texts := fields[last+1]
	length = len(out) - len(texts) + jobTextWidth + 1
	values := valuesOf(texts[:jobTextWidth], jobTexts)
	job.User, job.Partition, job.Reservation, job.Reason = values[0], values[1], named(values[2]), strings.TrimSpace(values[3])
	if list = named(strings.TrimSpace(list)); list != "" {
		if job.Nodes, err = hostlist.Expand(strings.Clone(list)); err != nil {
			job.Unread = fmt.Sprintf("%.300v", err)
		}
	}
	return job, length, nil
}

// Why nothing is known of a row's job.
var (
	errFields = errors.New("has too few fields")
	errNoID   = errors.New("has no job id")
	errNoUID  = errors.New("has no uid")
)

func unreadable(out string, why error) error {
	return fmt.Errorf("squeue row %.200q %w: %w", out, why, kb.ErrUnavailable)
}

// ownFields reads what Slurm makes itself, but for the node list.
func ownFields(fields []string) (kb.SlurmJob, error) {
	limited := func(i, bits int) uint64 {
		n, err := strconv.ParseUint(fields[i], 10, bits)
		if err != nil {
			return 0
		}
		return n
	}
	number := func(i int) uint64 { return limited(i, 64) }
	number32 := func(i int) uint32 { return uint32(limited(i, 32)) } //nolint:gosec // G115: parsed as 32 bits
	job := kb.SlurmJob{
		ID: number32(0), Restart: number32(5), State: fields[6], NodeCount: number32(8), Priority: number(9),
		Reboot: number(10) != 0, Requeue: number(11) != 0,
	}
	if job.ID == 0 {
		return job, errNoID
	}
	// Rights depend on the uid: an invalid number must not become root's.
	uid, err := strconv.ParseUint(fields[7], 10, 32)
	if err != nil {
		return job, errNoUID
	}
	job.UID = uint32(uid)
	job.Reference = fields[0]
	switch {
	case number(3) != 0:
		job.Reference = fields[3] + "+" + fields[4]
	case isNumber(fields[2]):
		job.Reference = fields[1] + "_" + fields[2]
		job.Task = number32(2)
	}
	return job, nil
}

// named is an optional field of squeue's.
func named(text string) string {
	if text == "(null)" || text == "N/A" {
		return ""
	}
	return text
}

func isNumber(text string) bool {
	_, err := strconv.ParseUint(text, 10, 32)
	return err == nil
}
