// SPDX-License-Identifier: Apache-2.0

package slim

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Function is a symbol of code, up to the next symbol.
type Function struct {
	Name  string
	Begin uint64
	End   uint64
}

// ReadSymbols reads nm, System.map or /proc/kallsyms, in any order, and keeps
// the functions of the kernel's own image. The last function, whose end is
// not known, is left out: it is a mark of the linker script.
func ReadSymbols(reader io.Reader) ([]Function, error) {
	all, err := readCode(reader)
	if err != nil {
		return nil, err
	}
	return upToNext(all), nil
}

// readCode has all symbols of code by their beginning, and without their end.
func readCode(reader io.Reader) ([]Function, error) {
	var all []Function
	err := eachLine(reader, "symbols", func(line string) error {
		fields := strings.Fields(line)
		if len(fields) != 3 || len(fields[1]) != 1 {
			return nil // a module's symbol, an undefined one, or nothing
		}
		address, err := parseHex(fields[0])
		if err == nil && address >= kernelHalf && isCode(fields[1][0]) {
			all = append(all, Function{Name: fields[2], Begin: address})
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(all, func(a, b Function) int { return cmp.Compare(a.Begin, b.Begin) })
	return all, nil
}

// upToNext gives each function its end. Of several names for one address the
// first stands for all.
func upToNext(all []Function) []Function {
	all = slices.CompactFunc(all, func(a, b Function) bool { return a.Begin == b.Begin })
	for i := range all {
		if i+1 < len(all) {
			all[i].End = all[i+1].Begin
		}
	}
	if len(all) > 0 {
		all = all[:len(all)-1]
	}
	return all
}

// linkerMark is a name by which the linker script marks where a part of the code
// begins or ends. Behind such a mark there may be as much room as a large page.
var linkerMark = regexp.MustCompile(`^__\w+_text_(start|end)$|^_[se]?text$`)

// ReadText is ReadSymbols for the code that stays in memory after the start,
// without the marks of the linker script.
func ReadText(reader io.Reader) ([]Function, error) {
	all, err := readCode(reader)
	if err != nil {
		return nil, err
	}
	end := slices.IndexFunc(all, func(f Function) bool { return f.Name == "_etext" })
	if end < 0 {
		return nil, errors.New("symbols: no _etext, which ends the code")
	}
	limit := all[end].Begin
	// Where a mark and a function begin together, the function stands for both.
	slices.SortStableFunc(all, func(a, b Function) int {
		if order := cmp.Compare(a.Begin, b.Begin); order != 0 || isMark(a) == isMark(b) {
			return order
		}
		if isMark(b) {
			return -1
		}
		return 1
	})
	return slices.DeleteFunc(upToNext(all), func(f Function) bool { return f.Begin >= limit || isMark(f) }), nil
}

func isMark(f Function) bool { return linkerMark.MatchString(f.Name) }

// isCode accepts nm's letters for code, local and global, strong and weak.
func isCode(kind byte) bool { return kind == 't' || kind == 'T' || kind == 'w' || kind == 'W' }

// objectsOf is the object of each function whose name no other object has.
func objectsOf(functions []Function, pieces []Piece) map[string]string {
	objects := map[string]string{}
	for name, in := range namesOf(functions, pieces) {
		if len(in) == 1 {
			objects[name] = in[0]
		}
	}
	return objects
}

// namesOf finds each function's object by its address, since a local name may stand in several objects. What lies in no
// object's code, such as the marks of the linker script, is left out.
func namesOf(functions []Function, pieces []Piece) Names {
	names := Names{}
	code := codeOf(pieces)
	for _, f := range functions {
		piece, in := pieceAt(code, f.Begin)
		if in && !slices.Contains(names[f.Name], piece.Object) {
			names[f.Name] = append(names[f.Name], piece.Object)
		}
	}
	return names
}

// codeOf are the pieces of code, in the order of their addresses.
func codeOf(pieces []Piece) []Piece {
	code := slices.DeleteFunc(slices.Clone(pieces), func(p Piece) bool { return !codeSections[p.Section] })
	slices.SortFunc(code, func(a, b Piece) int { return cmp.Compare(a.Begin, b.Begin) })
	return code
}

// pieceAt is the one of codeOf that an address is in.
func pieceAt(code []Piece, address uint64) (Piece, bool) {
	next := sort.Search(len(code), func(i int) bool { return code[i].Begin > address })
	if next == 0 || address >= code[next-1].end() {
		return Piece{}, false
	}
	return code[next-1], true
}

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
