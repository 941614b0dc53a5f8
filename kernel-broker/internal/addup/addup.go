// SPDX-License-Identifier: Apache-2.0

// Package addup adds up figures that are many fields of a structure, and scales
// them: a field says itself, by its tag, what becomes of it.
//
// Unsigned numbers are figures, also in arrays, in lists, where zeros at the
// end are left out, and below maps and pointers. Everything else is the first
// one's unless that is zero. Of a number or a list the tag sum says that it is
//
//	key    the name of an element: those of one name are one in a sum of lists,
//	       the others stand beside each other
//	seen   a figure that does not scale
//	max    the largest, and no figure that scales
//	least  the least that is not zero
//	void   nothing in a sum: it rests on the single ones
//	-      no figure
//
// A type T with a method Sum(T) T is added by it, and a pointer with a method
// Sort is sorted by it.
package addup

import (
	"math"
	"reflect"
	"strings"
	"sync"
)

// Plus is both together; neither is changed.
func Plus[T any](a, b T) T { return join(a, b, plus) }

var plus = way{func(x, y uint64) uint64 { return x + y }, true}

// Add puts more into a sum. It is the way to add up many values.
func Add[T any](sum, more *T) {
	all := reflect.ValueOf(sum).Elem()
	plus.join(all, all, reflect.ValueOf(more).Elem())
}

// Less is the first without the second, and nothing where that is more.
func Less[T any](a, b T) T {
	return join(a, b, way{func(x, y uint64) uint64 { return x - min(x, y) }, false})
}

// Scaled multiplies each figure, and rounds.
func Scaled[T any](v T, factor float64) T {
	return join(v, v, way{func(x, _ uint64) uint64 { return uint64(math.Round(float64(x) * factor)) }, false})
}

// way of joining two figures to one, a sum or not.
type way struct {
	figure func(x, y uint64) uint64
	sum    bool
}

func join[T any](a, b T, w way) T {
	var out T
	w.join(reflect.ValueOf(&out).Elem(), reflect.ValueOf(&a).Elem(), reflect.ValueOf(&b).Elem())
	return out
}

func (w way) join(out, a, b reflect.Value) {
	switch out.Kind() {
	case reflect.Uint64, reflect.Uint32, reflect.Uint16, reflect.Uint8, reflect.Uint:
		out.SetUint(w.figure(a.Uint(), b.Uint()))
	case reflect.Struct:
		w.fields(out, a, b)
	case reflect.Array:
		for i := range out.Len() {
			w.join(out.Index(i), a.Index(i), b.Index(i))
		}
	case reflect.Slice:
		list := reflect.New(out.Type()).Elem() // out may be a
		w.lists(list, a, b)
		out.Set(list)
	case reflect.Map:
		all := reflect.MakeMap(out.Type())
		w.maps(all, a, b)
		out.Set(all)
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() {
			out.Set(first(a, b))
			return
		}
		if w.own(planOf(out.Type()), out, a, b) {
			return
		}
		made := reflect.New(out.Type().Elem())
		w.join(made.Elem(), a.Elem(), b.Elem())
		if sorted, can := made.Interface().(interface{ Sort() }); can {
			sorted.Sort()
		}
		out.Set(made)
	default:
		out.Set(first(a, b))
	}
}

// plan is what the tags and methods of a type say.
type plan struct {
	sum  bool // it has the method
	tags []string
	keys []int
}

var plans sync.Map // of *plan by reflect.Type

func planOf(t reflect.Type) *plan {
	if known, ok := plans.Load(t); ok {
		return known.(*plan) //nolint:forcetypeassert // nothing else is in it
	}
	p := &plan{}
	_, p.sum = t.MethodByName("Sum")
	for i := 0; t.Kind() == reflect.Struct && i < t.NumField(); i++ {
		tag := t.Field(i).Tag.Get("sum")
		if !t.Field(i).IsExported() {
			tag = "void"
		}
		if tag == "key" {
			p.keys = append(p.keys, i)
		}
		p.tags = append(p.tags, tag)
	}
	plans.Store(t, p)
	return p
}

// own adds by the type's own method, if it has one. By its name the linker knows that
// no other method is called.
func (w way) own(p *plan, out, a, b reflect.Value) bool {
	if !w.sum || !p.sum {
		return false
	}
	out.Set(a.MethodByName("Sum").Call([]reflect.Value{b})[0])
	return true
}

func first(a, b reflect.Value) reflect.Value {
	if a.IsZero() {
		return b
	}
	return a
}

func (w way) fields(out, a, b reflect.Value) {
	p := planOf(out.Type())
	switch {
	case w.sum && b.IsZero():
		out.Set(a)
		return
	case w.sum && a.IsZero():
		out.Set(b)
		return
	case w.own(p, out, a, b):
		return
	}
	for i, tag := range p.tags {
		to, x, y := out.Field(i), a.Field(i), b.Field(i)
		switch {
		case tag == "void":
		case tag == "key" || tag == "-" || !w.sum && tag != "":
			to.Set(first(x, y))
		case tag == "max":
			to.SetUint(max(x.Uint(), y.Uint()))
		case tag == "least" && (x.IsZero() || y.IsZero()):
			to.Set(first(x, y))
		case tag == "least":
			to.SetUint(min(x.Uint(), y.Uint()))
		default:
			w.join(to, x, y)
		}
	}
}

func (w way) lists(out, a, b reflect.Value) {
	switch element := out.Type().Elem(); {
	case element.Kind() == reflect.Uint64:
		w.numbers(out, a, b)
	case element.Kind() != reflect.Struct:
		out.Set(first(a, b))
	case w.sum:
		elements(w, out, a, b)
	default:
		for i := range a.Len() {
			one := reflect.New(element).Elem()
			w.join(one, a.Index(i), a.Index(i))
			out.Set(reflect.Append(out, one))
		}
	}
}

func (w way) numbers(out, a, b reflect.Value) {
	at := func(v reflect.Value, i int) uint64 {
		if i < v.Len() {
			return v.Index(i).Uint()
		}
		return 0
	}
	used := 0
	all := reflect.MakeSlice(out.Type(), max(a.Len(), b.Len()), max(a.Len(), b.Len()))
	for i := range all.Len() {
		if n := w.figure(at(a, i), at(b, i)); n != 0 {
			all.Index(i).SetUint(n)
			used = i + 1
		}
	}
	if used > 0 {
		out.Set(all.Slice(0, used))
	}
}

// elements of one name become one, where the first of them stood.
func elements(w way, out, a, b reflect.Value) {
	names := planOf(out.Type().Elem()).keys
	all := reflect.AppendSlice(reflect.AppendSlice(reflect.MakeSlice(out.Type(), 0, a.Len()+b.Len()), a), b)
	if len(names) == 0 {
		if all.Len() > 0 {
			out.Set(all)
		}
		return
	}
	places := map[[2]any]int{}
	for i := range all.Len() {
		var name [2]any
		for k, field := range names {
			name[k] = all.Index(i).Field(field).Interface()
			if list, is := name[k].([]string); is {
				name[k] = strings.Join(list, "\x00")
			}
		}
		place, known := places[name]
		if !known {
			places[name] = out.Len()
			out.Set(reflect.Append(out, all.Index(i)))
			continue
		}
		sum := reflect.New(out.Type().Elem()).Elem()
		w.join(sum, out.Index(place), all.Index(i))
		out.Index(place).Set(sum)
	}
}

// maps leaves out what comes to nothing.
func (w way) maps(out, a, b reflect.Value) {
	zero := reflect.Zero(out.Type().Elem())
	value := func(in, key reflect.Value) reflect.Value {
		if v := in.MapIndex(key); v.IsValid() {
			return v
		}
		return zero
	}
	for _, in := range []reflect.Value{a, b} {
		for _, key := range in.MapKeys() {
			one := reflect.New(out.Type().Elem()).Elem()
			if w.join(one, value(a, key), value(b, key)); !one.IsZero() {
				out.SetMapIndex(key, one)
			}
		}
	}
}
