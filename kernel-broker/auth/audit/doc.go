// SPDX-License-Identifier: Apache-2.0

// Package audit keeps the record of who did what and whether they might, so
// that a line that was changed, moved or taken out shows.
//
// The log is JSON lines in files. Each line carries its number and the SHA-256
// digest of the line before it, over all files; a file is named by the number
// of its first line and is never renamed, cut or rewritten, so that it may have
// the append-only attribute. Beside the files a head names the last line that
// is on disk: with it a tail that was cut off shows, too. Who can write files
// and head can make another log of them. Against that helps a head that is kept
// elsewhere: each line's number and digest also go to the process's log.
//
// A writer that is killed in the middle of a line leaves a piece of one. The
// next writer ends that line, leaves it where it is, and writes a record that
// names its length and digest. A reader so tells a torn line from a changed one.
//
// After a sync that failed nobody can say which of the last records are on disk.
// The log writes none before it could go on in another file, whose first record
// says which those are. A writer that was killed, also with an uncertain tail, leaves a
// head that is behind the files: the next one goes on in the same way.
package audit
