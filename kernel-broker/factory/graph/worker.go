// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/atomicfile"
)

// taskFile is what another process must know to do a task: it makes the same
// graph itself, and checks that it came to the same inputs.
type taskFile struct {
	Step   string             `json:"step"`
	Key    string             `json:"key"`
	Inputs map[string]string  `json:"inputs"`
	Needs  map[string]keyOnly `json:"needs"`
}

type keyOnly struct {
	Kind string `json:"kind"`
	Key  string `json:"key"`
}

// hand writes the task for another process.
func (t task) hand() (path string, err error) {
	file := taskFile{Step: t.step.Name, Key: t.key, Inputs: t.step.Inputs, Needs: map[string]keyOnly{}}
	for as, need := range t.needs {
		file.Needs[as] = keyOnly{Kind: need.Kind, Key: need.Key}
	}
	text, err := json.MarshalIndent(file, "", "  ")
	if err != nil {
		return "", err
	}
	path = t.path("task.json")
	return path, atomicfile.Write(path, append(text, '\n'), 0o644)
}

// keyForm is that of ValueDigest: a key becomes a folder's name.
var keyForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Work does the task that another process handed over in a file, with the step
// of this process's graph. What goes wrong is left for the other to find.
func (s Store) Work(ctx context.Context, path string, g *Graph) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("task: %w", err)
	}
	var file taskFile
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&file); err != nil {
		return fmt.Errorf("task %q: %w", path, err)
	}
	step, has := g.Step(file.Step)
	if !has || step.Effect {
		return fmt.Errorf("task %q: no step %q that can be handed over", path, file.Step)
	}
	if !keyForm.MatchString(file.Key) {
		return fmt.Errorf("task %q: %q is no key", path, file.Key)
	}
	t := task{step: step, needs: map[string]Result{}, spot: s.spot(step.Kind, file.Key), observe: func(update) {}, slot: unlimited}
	if err := t.accept(s, file); err != nil {
		return t.fail(step.Name, err)
	}
	_, err = t.perform(ctx)
	return err
}

// accept finds what the task needs, and refuses one that would come to another
// result here than where it was made.
func (t task) accept(s Store, file taskFile) error {
	var other []string
	for name, there := range file.Inputs {
		if _, has := t.step.Inputs[name]; !has {
			other = append(other, fmt.Sprintf("%s is %q there, and nothing here", name, there))
		}
	}
	for name, here := range t.step.Inputs {
		if there := file.Inputs[name]; there != here {
			other = append(other, fmt.Sprintf("%s is %q there, %q here", name, there, here))
		}
	}
	if other != nil {
		slices.Sort(other)
		return fmt.Errorf("this machine has other inputs than the one that asks: %s", strings.Join(other, "; "))
	}
	for as := range t.step.Needs {
		need, err := s.Find(file.Needs[as].Kind, file.Needs[as].Key)
		if err != nil {
			return fmt.Errorf("need %q: %w", as, err)
		}
		t.needs[as] = need
	}
	key, err := key(&t.step, t.needs)
	if err == nil && key != t.key {
		err = fmt.Errorf("its inputs give key %s here, %s there", key, t.key)
	}
	return err
}
