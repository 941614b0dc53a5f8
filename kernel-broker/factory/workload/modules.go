// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// orderFile lists a kernel's modules, each after those that it depends on.
const orderFile = "load-order"

// pickModules finds the wanted modules and what they depend on, in an order
// that they can be inserted in. A kernel without modules has it all built in; a
// module that is not there may be built in too, so that is no mistake here.
func pickModules(folder string, wanted []string) ([]string, error) {
	if folder == "" || len(wanted) == 0 {
		return nil, nil
	}
	order, err := os.ReadFile(filepath.Join(folder, orderFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("modules: %w", err)
	}
	tops, err := filepath.Glob(filepath.Join(folder, "lib/modules/*/modules.dep"))
	if err != nil {
		return nil, fmt.Errorf("modules: %w", err)
	}
	if len(tops) != 1 {
		return nil, fmt.Errorf("modules: %d releases in %s", len(tops), folder)
	}
	dependencies, err := os.ReadFile(tops[0])
	if err != nil {
		return nil, fmt.Errorf("modules: %w", err)
	}
	picked := closure(string(dependencies), wanted)
	var paths []string
	for line := range strings.Lines(string(order)) {
		if line = strings.TrimSpace(line); picked[line] {
			paths = append(paths, filepath.Join(filepath.Dir(tops[0]), line))
		}
	}
	return paths, nil
}

// closure reads modules.dep, whose lines are "module: all that it needs".
func closure(dependencies string, wanted []string) map[string]bool {
	names := map[string]bool{}
	for _, name := range wanted {
		names[plain(name)] = true
	}
	picked := map[string]bool{}
	for line := range strings.Lines(dependencies) {
		module, needs, _ := strings.Cut(strings.TrimSpace(line), ":")
		if !names[plain(path.Base(module))] {
			continue
		}
		picked[module] = true
		for need := range strings.FieldsSeq(needs) {
			picked[need] = true
		}
	}
	return picked
}

// plain is a module's name without its ending, and with one kind of dash.
func plain(name string) string {
	name, _, _ = strings.Cut(name, ".ko")
	return strings.ReplaceAll(name, "-", "_")
}
