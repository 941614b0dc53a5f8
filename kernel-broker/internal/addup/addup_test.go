// SPDX-License-Identifier: Apache-2.0

package addup

import (
	"reflect"
	"slices"
	"testing"
)

type part struct{ N uint64 }

type element struct {
	Name  string `sum:"key"`
	Count uint64
	Words []string `sum:"void"`
}

type worst struct{ At, Most uint64 }

func (w worst) Sum(other worst) worst {
	if other.Most > w.Most {
		return other
	}
	return w
}

type figures struct {
	Label   string
	Number  uint32 `sum:"-"`
	Count   uint64
	Seen    uint64 `sum:"seen"`
	Most    uint64 `sum:"max"`
	Least   uint64 `sum:"least"`
	Buckets []uint64
	Fixed   [2]uint64
	Parts   map[string]part
	Named   []element
	Listed  []part
	Below   *part
	Worst   worst
	hidden  int
}

func both() (a, b figures) {
	a = figures{Label: "a", Number: 7, Count: 1, Seen: 2, Most: 3, Least: 4, Buckets: []uint64{1, 2}, Fixed: [2]uint64{1, 0}, hidden: 1,
		Parts: map[string]part{"x": {1}, "none": {}}, Named: []element{{"p", 1, []string{"alone"}}, {"q", 2, []string{"two"}}}, Listed: []part{{1}},
		Below: &part{5}, Worst: worst{1, 10}}
	b = figures{Label: "b", Number: 8, Count: 10, Seen: 20, Most: 2, Buckets: []uint64{0, 0, 5}, Fixed: [2]uint64{0, 1},
		Parts: map[string]part{"x": {10}, "y": {1}}, Named: []element{{"q", 20, []string{"two"}}, {"r", 1, nil}}, Listed: []part{{2}},
		Below: &part{6}, Worst: worst{2, 20}}
	return a, b
}

func TestPlus(t *testing.T) {
	a, b := both()
	got := Plus(a, b)
	want := figures{Label: "a", Number: 7, Count: 11, Seen: 22, Most: 3, Least: 4, Buckets: []uint64{1, 2, 5}, Fixed: [2]uint64{1, 1},
		Parts: map[string]part{"x": {11}, "y": {1}}, Named: []element{{"p", 1, []string{"alone"}}, {"q", 22, nil}, {"r", 1, nil}},
		Listed: []part{{1}, {2}}, Below: &part{11}, Worst: worst{2, 20}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	into, _ := both()
	into.hidden = 0
	if Add(&into, &b); !reflect.DeepEqual(into, want) {
		t.Errorf("put into it: %+v", into)
	}
	got.Buckets[0], got.Named[0].Count, got.Below.N = 99, 99, 99
	if c, d := both(); !reflect.DeepEqual(a, c) || !reflect.DeepEqual(b, d) {
		t.Error("what was added up is changed")
	}
}

func TestScaled(t *testing.T) {
	a, _ := both()
	got := Scaled(a, 2.5)
	want := figures{Label: "a", Number: 7, Count: 3, Seen: 2, Most: 3, Least: 4, Buckets: []uint64{3, 5}, Fixed: [2]uint64{3, 0},
		Parts: map[string]part{"x": {3}}, Named: []element{{"p", 3, nil}, {"q", 5, nil}}, Listed: []part{{3}}, Below: &part{13}, Worst: worst{3, 25}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestLess(t *testing.T) {
	got := Less(figures{Count: 5, Most: 9, Buckets: []uint64{3, 1, 4}}, figures{Count: 7, Most: 1, Buckets: []uint64{1, 1, 4, 9}})
	if got.Count != 0 || got.Most != 9 || !slices.Equal(got.Buckets, []uint64{2}) {
		t.Errorf("%+v", got)
	}
}

type list struct{ All []part }

func (l *list) Sort() { slices.SortFunc(l.All, func(a, b part) int { return int(b.N) - int(a.N) }) }

func TestSortsAndNil(t *testing.T) {
	a, b := &list{[]part{{1}}}, &list{[]part{{2}}}
	if got := Plus(a, b); got.All[0].N != 2 || a.All[0].N != 1 {
		t.Errorf("%+v of %+v", got, a)
	}
	if Plus(a, nil) != a || Plus(nil, b) != b || Plus[*list](nil, nil) != nil {
		t.Error("one alone is itself")
	}
}
