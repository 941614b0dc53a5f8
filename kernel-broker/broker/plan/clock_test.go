// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
)

// moved is a copy of anything in which each time is later by a step.
func moved(v reflect.Value, by time.Duration) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	if t, ok := v.Interface().(time.Time); ok {
		if !t.IsZero() {
			out.Set(reflect.ValueOf(t.Add(by)))
		}
		return out
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			out = reflect.New(v.Type().Elem())
			out.Elem().Set(moved(v.Elem(), by))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if out.Field(i).CanSet() {
				out.Field(i).Set(moved(v.Field(i), by))
			}
		}
	case reflect.Slice:
		if !v.IsNil() {
			out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
			for i := range v.Len() {
				out.Index(i).Set(moved(v.Index(i), by))
			}
		}
	case reflect.Map:
		if !v.IsNil() {
			out.Set(reflect.MakeMap(v.Type()))
			for _, key := range v.MapKeys() {
				out.SetMapIndex(key, moved(v.MapIndex(key), by))
			}
		}
	}
	return out
}

// Decisions hang on what has passed between two times, never on a time itself: by
// a clock that shows anything else the same is decided.
func TestClockStepChangesNoDecision(t *testing.T) {
	worlds := []func(*testing.T) *world{switching, booting, running, returns, runningOnTwo}
	rapid.Check(t, func(r *rapid.T) {
		w := worlds[rapid.IntRange(0, len(worlds)-1).Draw(r, "world")](t)
		for range rapid.IntRange(0, 3).Draw(r, "steps") {
			switch rapid.IntRange(0, 3).Draw(r, "event") {
			case 0:
				w.silence("n1")
			case 1:
				w.boot("n1", kernels[0], "")
			case 2:
				delete(w.slurm.Jobs, 7)
			case 3:
				w.slurmd("n1")
			}
			w.now = w.now.Add(time.Duration(rapid.IntRange(0, 400).Draw(r, "seconds")) * time.Second)
		}
		in := w.input()
		in.Began = noon.Add(time.Duration(rapid.IntRange(-100, 100).Draw(r, "began")) * time.Second)
		token := func() string { return "token" }
		// Whole seconds: in them slurmctld counts boots.
		by := time.Duration(rapid.Int64Range(-1e7, 1e7).Draw(r, "by")) * time.Second
		other := in
		other.Now, other.Began = in.Now.Add(by), in.Began.Add(by)
		other.Slurm = moved(reflect.ValueOf(in.Slurm), by).Interface().(kb.SlurmView)
		other.Nodes = moved(reflect.ValueOf(in.Nodes), by).Interface().(map[string]*kb.Node)
		other.Allocations = moved(reflect.ValueOf(in.Allocations), by).Interface().(map[kb.JobID]*kb.Allocation)
		other.Agents = moved(reflect.ValueOf(in.Agents), by).Interface().(map[string]Agent)
		in.NewToken, other.NewToken = token, token
		want := moved(reflect.ValueOf(Decide(in)), by).Interface().(Output)
		if got := Decide(other); !reflect.DeepEqual(got, want) {
			r.Fatalf("%v later another decision:\n%+v\n%+v", by, got, want)
		}
	})
}
