// Package fuzz runs every fuzz target of the repository in turn, each for as
// long as it is told, and keeps what the runs found.
//
// Go's fuzzing keeps interesting inputs in a cache that no clone has. Here the
// corpus is part of the repository: one archive for each target, in
// tests/fuzz-corpus/PACKAGE/TARGET.tar.gz, from which the next run goes on. Of
// what was found the smallest inputs are kept, up to a number and a size, since
// small ones are quick and the engine makes large ones of them. An input that
// fails is another thing: Go writes it to the package's testdata/fuzz, where it
// is a regression test from then on.
package fuzz
