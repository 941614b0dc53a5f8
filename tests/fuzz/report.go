package fuzz

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/kernelbroker/kernelbroker/tests/jsonfile"
)

// Report is the JSON of a run.
type Report struct {
	Began time.Time `json:"began"`
	// Time for each target, and how many ran side by side.
	Time    string   `json:"time"`
	AtOnce  int      `json:"at_once"`
	Results []Result `json:"results"`
}

// Write keeps the report.
func (r Report) Write(path string) error { return jsonfile.Write(path, r) }

// Table prints it for people, and returns how many targets found something.
func (r Report) Table(out io.Writer) (failed int) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "TARGET\tSECONDS\tPROCESSOR\tEXECS\tNEW\tQUIET\tKEPT\tRESULT")
	for _, x := range r.Results {
		word := "ok"
		switch {
		case x.Failed != "":
			failed++
			word = "FAILED " + x.Input
		case x.Broke != "":
			word = "broke off"
		}
		_, _ = fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%d\t%d\t%.0f\t%d\t%s\n", x.Target, x.Seconds, x.Processor, x.Execs, x.New, x.Quiet, x.Kept, word)
	}
	_ = w.Flush() // to a terminal
	for _, x := range r.Results {
		if words := x.words(); words != "" {
			_, _ = fmt.Fprintf(out, "\n%s: %s\n", x.Target, words)
		}
	}
	return failed
}
