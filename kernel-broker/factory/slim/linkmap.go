// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
)

// Piece is what one object gave to one section of the kernel.
type Piece struct {
	Object string
	// Section of the result, such as .text or .init.text.
	Section string
	Begin   uint64
	Size    uint64
}

func (p Piece) end() uint64 { return p.Begin + p.Size }

// codeSections of the kernel are those whose instructions run at the place
// where the linker put them.
var codeSections = map[string]bool{".text": true, ".init.text": true}

// ReadLinkMap reads the map that GNU ld writes with -Map. It is the only
// record that distinguishes functions of one name, since it has ranges of
// addresses for each object and needs no names at all.
func ReadLinkMap(reader io.Reader) ([]Piece, error) {
	var parser mapParser
	if err := eachLine(reader, "link map", parser.line); err != nil {
		return nil, err
	}
	if len(parser.pieces) == 0 {
		return nil, errors.New("link map: no object in it")
	}
	return parser.pieces, nil
}

type mapParser struct {
	begun   bool
	section string
	// pending is the name of an input section that was too long for its line:
	// the numbers stand on the next one.
	pending bool
	pieces  []Piece
}

const mapTitle = "Linker script and memory map"

func (p *mapParser) line(text string) error {
	if !p.begun {
		p.begun = text == mapTitle
		return nil
	}
	fields := strings.Fields(text)
	if len(fields) == 0 {
		return nil
	}
	if p.pending {
		p.pending = false
		return p.piece(fields)
	}
	switch {
	case text[0] == '.':
		p.section = fields[0]
	case text[0] != ' ':
		p.section = ""
	case len(text) > 1 && (text[1] == '.' || isName(text[1])):
		if len(fields) == 1 {
			p.pending = true
			return nil
		}
		return p.piece(fields[1:])
	}
	return nil
}

func isName(c byte) bool { return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// piece reads "address size object". Other lines at the same place, such as
// fills and assignments, do not have this form.
func (p *mapParser) piece(fields []string) error {
	if len(fields) < 3 || !strings.HasPrefix(fields[0], "0x") || !strings.HasPrefix(fields[1], "0x") {
		return nil
	}
	begin, err := strconv.ParseUint(fields[0], 0, 64)
	if err != nil {
		return fmt.Errorf("address %q: not a number", fields[0])
	}
	size, err := strconv.ParseUint(fields[1], 0, 64)
	if err != nil {
		return fmt.Errorf("size %q: not a number", fields[1])
	}
	if begin+size < begin {
		return fmt.Errorf("address %s and size %s pass the end of memory", fields[0], fields[1])
	}
	object := objectPath(strings.Join(fields[2:], " "))
	if size == 0 || p.section == "" || !strings.HasSuffix(object, ".o") {
		return nil
	}
	p.pieces = append(p.pieces, Piece{Object: object, Section: p.section, Begin: begin, Size: size})
	return nil
}

// objectPath writes a member of an archive as the file it was made from. Thin
// archives, which the kernel uses, have the file's own path there.
func objectPath(name string) string {
	archive, rest, member := strings.Cut(name, "(")
	if inner, closed := strings.CutSuffix(rest, ")"); member && closed {
		name = path.Join(path.Dir(archive), inner)
	}
	return path.Clean(name)
}
