// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/verdict"
)

// Table writes samples of one metric, one line for each part of a workload and one column
// for each kernel, in the order of the samples; the columns after the first
// also say how much more or less it is than the first. Values of several
// repetitions stand as their mean.
func Table(to io.Writer, metric string, samples []verdict.Sample) error {
	var kernels, workloads []string
	cells := map[[2]string]float64{}
	for _, sample := range samples {
		if sample.Metric != metric {
			continue
		}
		if !slices.Contains(kernels, sample.Kernel) {
			kernels = append(kernels, sample.Kernel)
		}
		name := label(sample)
		if !slices.Contains(workloads, name) {
			workloads = append(workloads, name)
		}
		cells[[2]string{name, sample.Kernel}] = mean(sample.Values)
	}
	if len(cells) == 0 {
		return fmt.Errorf("table: no sample of %q", metric)
	}
	out := tabwriter.NewWriter(to, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(out, "%s/operation\t", metric)
	for _, kernel := range kernels {
		fmt.Fprintf(out, "%s\t", kernel)
	}
	for _, workload := range workloads {
		fmt.Fprintf(out, "\n%s\t", workload)
		first, compare := cells[[2]string{workload, kernels[0]}]
		for i, kernel := range kernels {
			value, there := cells[[2]string{workload, kernel}]
			fmt.Fprintf(out, "%s\t", cell(value, there, first, compare && i > 0))
		}
	}
	fmt.Fprintln(out)
	return out.Flush()
}

func label(sample verdict.Sample) string {
	if sample.Part == "" {
		return sample.Workload
	}
	return sample.Workload + "/" + sample.Part
}

func cell(value float64, there bool, first float64, compare bool) string {
	if !there {
		return "-"
	}
	text := strconv.FormatFloat(value, 'f', 1, 64)
	if compare && first > 0 {
		text += fmt.Sprintf(" %+.1f%%", 100*(value/first-1))
	}
	return text
}

func mean(values []float64) float64 {
	var all float64
	for _, value := range values {
		all += value
	}
	return all / float64(len(values))
}
