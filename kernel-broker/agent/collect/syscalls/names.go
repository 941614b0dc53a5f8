// SPDX-License-Identifier: Apache-2.0

package syscalls

import (
	_ "embed"
	"strconv"
	"strings"
	"sync"
)

//go:generate ./generate_names.sh
//go:embed names.txt
var nameList string

// names of the system calls of x86-64 by number.
var names = sync.OnceValue(func() map[uint32]string {
	table := map[uint32]string{}
	for line := range strings.Lines(nameList) {
		text, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if number, err := strconv.ParseUint(text, 10, 32); err == nil {
			table[uint32(number)] = name
		}
	}
	return table
})
