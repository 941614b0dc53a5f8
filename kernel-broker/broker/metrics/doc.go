// SPDX-License-Identifier: Apache-2.0

// Package metrics makes figures for Prometheus: counters and histograms of the events that package history commits, and gauges
// of the state at each scrape.
//
// Names begin with kernelbroker_. A label has few values: the catalog's profiles, a node's name, a closed set of words. No
// label has a job or a text that somebody writes. Counters begin at zero with the process, as Prometheus expects.
package metrics
