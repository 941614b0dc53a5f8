// SPDX-License-Identifier: Apache-2.0

// Package report makes self-contained pages of what was measured: text, tables
// that sort, and charts, in one HTML file that needs no network, and the same
// text and tables for a terminal.
//
// The idea: a report is a Document of Sections of Components, and these are plain
// data. A View, a template, says which of them a report has and in which order;
// Go calculates the figures. No report has HTML of its own, so there is one
// place where names from outside are escaped, one that knows light, dark, paper
// and screen readers, and a terminal shows the very figures of the page, since
// both are drawn from the same values.
//
// A page says in its own content security policy that nothing may be loaded
// and that no script may run but the one in it, by digest. The script only
// sorts tables and zooms; without it everything is there to read. The two kinds
// of charts, rows with bars or dots and flame graphs, are drawn here as inline
// SVG, and not by a charts library: they take their colours from the page's
// theme, and each mark shows its figure to pointers and screen readers.
package report
