// SPDX-License-Identifier: Apache-2.0

package kexec

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/signing"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/safeopen"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/strictjson"
)

const (
	memoryFormat = 1
	maxMemory    = 1 << 20
)

// memoryFile is the file format of a node's memory.
type memoryFile struct {
	Format int               `json:"format"`
	Floors map[string]uint32 `json:"floors"`
	Newest time.Time         `json:"newest"`
}

// readMemory returns an empty memory if the file is missing. An unreadable file is an error: starting over would help an
// attacker.
func readMemory(path string) (signing.Memory, error) {
	text, err := safeopen.Read(path, maxMemory, ownOnly(path))
	if errors.Is(err, fs.ErrNotExist) {
		return signing.Memory{}, nil
	}
	if err == nil {
		var memory signing.Memory
		if memory, err = parseMemory(text); err == nil {
			return memory, nil
		}
	}
	return signing.Memory{}, fmt.Errorf("memory of floors %q: %w; after finding the cause, an administrator may remove the file", path, err)
}

func parseMemory(text []byte) (signing.Memory, error) {
	if len(text) > maxMemory {
		return signing.Memory{}, fmt.Errorf("more than %d bytes: %w", maxMemory, kb.ErrInvalid)
	}
	var f memoryFile
	if err := strictjson.Decode(text, &f); err != nil {
		return signing.Memory{}, fmt.Errorf("%w: %w", err, kb.ErrInvalid)
	}
	if f.Format != memoryFormat {
		return signing.Memory{}, fmt.Errorf("format %d, this program supports %d: %w", f.Format, memoryFormat, kb.ErrInvalid)
	}
	return signing.Memory{Floors: f.Floors, Newest: f.Newest}, nil
}

func writeMemory(path string, m signing.Memory) error {
	text, err := json.Marshal(memoryFile{Format: memoryFormat, Floors: m.Floors, Newest: m.Newest})
	if err != nil {
		return fmt.Errorf("memory of floors: %w", err)
	}
	if err := atomicfile.Write(path, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("memory of floors: %w", err)
	}
	return nil
}
