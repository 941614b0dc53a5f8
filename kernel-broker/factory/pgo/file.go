// SPDX-License-Identifier: Apache-2.0

package pgo

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Words of a .gcda file, in the order of the machine that wrote it: x86 only.
const (
	magic            = 0x67636461
	tagFunction      = 0x01000000
	tagCounters      = 0x01a10000
	tagSummary       = 0xa1000000
	word             = 4
	headerSize       = 4 * word
	functionSize     = 3 * word
	summarySize      = 2 * word
	counterKinds     = 8
	counterTagStep   = 1 << 17
	arcs             = 0
	maxZeroCounters  = 1 << 17
	generationLetter = 24
)

// generation is the compiler's in the version word, whose letters are 'B'
// (ten), then one for the last digit: gcc 12 writes "B2" and what follows.
var generation = [2]byte{'B', '2'}

// ErrFormat is in every error about bytes that are no profile of GCC 12.
var ErrFormat = errors.New("no profile of gcc 12")

// File is one .gcda file: the counters of one object's functions.
type File struct {
	Version   uint32
	Functions []Function
}

// Function is known by the compiler's number for it; the checksums say
// whether it is still the same text and the same flow.
type Function struct {
	Ident    uint32
	Lines    uint32
	Flow     uint32
	Counters []Counter
}

// Counter is one kind's counters of a function. Kind 0 counts arcs.
type Counter struct {
	Kind   int
	Values []int64
}

// Parse reads a .gcda file, of a kernel or of a program.
func Parse(data []byte) (File, error) {
	r := reader{words: make([]uint32, len(data)/word)}
	for i := range r.words {
		r.words[i] = binary.LittleEndian.Uint32(data[i*word:])
	}
	file, err := r.file(len(data))
	if err != nil {
		return File{}, fmt.Errorf("byte %d: %w: %w", word*r.at, err, ErrFormat)
	}
	return file, nil
}

// Max is the largest arc counter.
func (f File) Max() int64 {
	var largest int64
	for _, function := range f.Functions {
		for _, counter := range function.Counters {
			if counter.Kind != arcs {
				continue
			}
			for _, value := range counter.Values {
				largest = max(largest, value)
			}
		}
	}
	return largest
}

func (f File) counters() (number int) {
	for _, function := range f.Functions {
		for _, counter := range function.Counters {
			number += len(counter.Values)
		}
	}
	return number
}

// Ran reports whether anything in the file was executed.
func (f File) Ran() bool {
	for _, function := range f.Functions {
		for _, counter := range function.Counters {
			for _, value := range counter.Values {
				if value != 0 {
					return true
				}
			}
		}
	}
	return false
}

// Encode writes the file with an object summary, which GCC demands: for how
// many runs it stands, and the largest counter of the whole program.
func (f File) Encode(runs uint32, largest int64) []byte {
	var out bytes.Buffer
	put := func(words ...uint32) {
		for _, w := range words {
			out.Write(binary.LittleEndian.AppendUint32(nil, w))
		}
	}
	put(magic, f.Version, 0, 0) // the stamp and the checksum are for gcov
	put(tagSummary, summarySize, runs, uint32(min(largest, math.MaxUint32)))
	for _, function := range f.Functions {
		put(tagFunction, functionSize, function.Ident, function.Lines, function.Flow)
		for _, counter := range function.Counters {
			put(tagCounters+uint32(counter.Kind)*counterTagStep, uint32(8*len(counter.Values)))
			for _, value := range counter.Values {
				put(uint32(value), uint32(value>>32))
			}
		}
	}
	put(0)
	return out.Bytes()
}

type reader struct {
	words []uint32
	at    int
	// zeros are the counters that are not in the file: a dozen bytes each name
	// as many as they like.
	zeros int64
}

func (r *reader) file(size int) (File, error) {
	switch {
	case size < headerSize:
		return File{}, fmt.Errorf("%d bytes, the header alone has %d", size, headerSize)
	case size%word != 0:
		return File{}, fmt.Errorf("%d bytes are not whole words: truncated", size)
	case r.words[0] != magic:
		return File{}, fmt.Errorf("begins with %#x", r.words[0])
	}
	file := File{Version: r.words[1]}
	if byte(file.Version>>generationLetter) != generation[0] || byte(file.Version>>(generationLetter-8)) != generation[1] {
		return File{}, fmt.Errorf("written by another compiler, version %q", versionText(file.Version))
	}
	for r.at = headerSize / word; r.at < len(r.words); {
		tag := r.words[r.at]
		if r.at++; tag == 0 {
			break
		}
		if r.at == len(r.words) {
			return File{}, fmt.Errorf("tag %#x without a length", tag)
		}
		length := r.words[r.at]
		r.at++
		if err := r.record(&file, tag, length); err != nil {
			return File{}, err
		}
	}
	if left := len(r.words) - r.at; left > 0 {
		return File{}, fmt.Errorf("%d bytes after the end", word*left)
	}
	return file, nil
}

func versionText(version uint32) string {
	return string(binary.BigEndian.AppendUint32(nil, version))
}

// record reads one tag's content.
func (r *reader) record(file *File, tag, length uint32) error {
	switch {
	case tag == tagSummary:
		_, err := r.take(tag, length, summarySize)
		return err
	case tag == tagFunction && length == 0:
		// A function that this object only mentions: it has no counters here.
		return nil
	case tag == tagFunction:
		content, err := r.take(tag, length, functionSize)
		if err == nil {
			file.Functions = append(file.Functions, Function{Ident: content[0], Lines: content[1], Flow: content[2]})
		}
		return err
	case tag >= tagCounters && tag < tagCounters+counterKinds*counterTagStep && (tag-tagCounters)%counterTagStep == 0:
		return r.counter(file, int(tag-tagCounters)/counterTagStep, length)
	}
	return fmt.Errorf("unknown tag %#x", tag)
}

func (r *reader) take(tag, length, want uint32) ([]uint32, error) {
	if length != want {
		return nil, fmt.Errorf("tag %#x has %d bytes and not %d", tag, length, want)
	}
	content := r.words[r.at:]
	if int(length) > word*len(content) {
		return nil, fmt.Errorf("tag %#x has %d bytes, %d are left: truncated", tag, length, word*len(content))
	}
	content = content[:length/word]
	r.at += len(content)
	return content, nil
}

// counter reads one kind's counters. A negative length stands for so many
// bytes of zeros, which are then not in the file.
func (r *reader) counter(file *File, kind int, length uint32) error {
	if len(file.Functions) == 0 {
		return fmt.Errorf("counters before any function")
	}
	function := &file.Functions[len(file.Functions)-1]
	for _, earlier := range function.Counters {
		if earlier.Kind == kind {
			return fmt.Errorf("function %d has its counters of kind %d twice", function.Ident, kind)
		}
	}
	size := int64(int32(length))
	zeros := size < 0
	if zeros {
		size = -size
	}
	if size == 0 || size%8 != 0 {
		return fmt.Errorf("counters of %d bytes", size)
	}
	if zeros {
		if r.zeros += size / 8; r.zeros > maxZeroCounters {
			return fmt.Errorf("%d counters that are zero in one file", r.zeros)
		}
		function.Counters = append(function.Counters, Counter{Kind: kind, Values: make([]int64, size/8)})
		return nil
	}
	content, err := r.take(tagCounters, length, length)
	if err != nil {
		return err
	}
	values := make([]int64, size/8)
	for i := range values {
		values[i] = int64(content[2*i]) | int64(content[2*i+1])<<32
		if values[i] < 0 && kind == arcs {
			return fmt.Errorf("function %d: arc %d ran %d times", function.Ident, i, values[i])
		}
	}
	function.Counters = append(function.Counters, Counter{Kind: kind, Values: values})
	return nil
}
