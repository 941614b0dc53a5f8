// SPDX-License-Identifier: Apache-2.0

package autofdo

import (
	"debug/elf"
	"errors"
	"fmt"
)

// Thunks is where a kernel has its thunks. Under mitigations each indirect call and each return goes through one: a record
// names the way into it and the way out. Joined they are a branch from the caller to where it led, and only then can the
// compiler make a direct call of it.
type Thunks struct{ Begin, End uint64 }

func (t Thunks) has(address uint64) bool { return address >= t.Begin && address < t.End }

// symbols of a kernel that this package looks for; one without thunks lacks the last two.
const (
	symbolText   = "_text"
	symbolStext  = "_stext"
	symbolThunks = "__indirect_thunk_start"
	symbolBehind = "__indirect_thunk_end"
)

// Thunks whose branches are joined: those of the vmlinux where call targets are wanted. The zero value if it has none.
func (s Sampling) Thunks(vmlinux string) (Thunks, error) {
	at, err := addresses(vmlinux)
	if err != nil {
		return Thunks{}, err
	}
	return s.thunks(at)
}

func (s Sampling) thunks(at map[string]uint64) (Thunks, error) {
	if !s.CallTargets {
		return Thunks{}, nil
	}
	thunks := Thunks{Begin: at[symbolThunks], End: at[symbolBehind]}
	if thunks.End < thunks.Begin {
		return Thunks{}, fmt.Errorf("the kernel's thunks end at %#x, before they begin at %#x", thunks.End, thunks.Begin)
	}
	return thunks, nil
}

// addresses of the symbols above that a vmlinux has.
func addresses(vmlinux string) (found map[string]uint64, err error) {
	file, err := elf.Open(vmlinux)
	if err != nil {
		return nil, fmt.Errorf("symbols of %s: %w", vmlinux, err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	symbols, err := file.Symbols()
	if err != nil {
		return nil, fmt.Errorf("symbols of %s: %w", vmlinux, err)
	}
	found = map[string]uint64{}
	for _, s := range symbols {
		switch s.Name {
		case symbolText, symbolStext, symbolThunks, symbolBehind:
			found[s.Name] = s.Value
		}
	}
	return found, nil
}
