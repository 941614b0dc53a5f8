// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Digest of a message: equal messages have one digest, whichever program encoded them.
// protobuf's own encoding promises that within one program only, and client
// and broker are two.
//
// Each field that is set counts with its number, in their order; lists with
// their length; maps in the order of their keys' digests; a message within with
// its own digest; and fields that this program does not know as they came.
func Digest(message proto.Message) string {
	if message == nil {
		return hex.EncodeToString(make([]byte, sha256.Size))
	}
	sum := digestOf(message.ProtoReflect())
	return hex.EncodeToString(sum[:])
}

func digestOf(m protoreflect.Message) (sum [sha256.Size]byte) {
	d := digester{sha256.New()}
	d.text(string(m.Descriptor().FullName()))
	var fields []protoreflect.FieldDescriptor
	m.Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		fields = append(fields, f)
		return true
	})
	slices.SortFunc(fields, func(a, b protoreflect.FieldDescriptor) int { return int(a.Number()) - int(b.Number()) })
	for _, f := range fields {
		d.number(uint64(f.Number()))
		d.field(f, m.Get(f))
	}
	d.number(0) // no field has it
	d.text(string(m.GetUnknown()))
	d.hash.Sum(sum[:0])
	return sum
}

// digester writes each thing so that its end is known from its begin.
type digester struct{ hash hash.Hash }

func (d digester) number(n uint64) {
	d.hash.Write(binary.BigEndian.AppendUint64(nil, n))
}

func (d digester) text(s string) {
	d.number(uint64(len(s)))
	d.hash.Write([]byte(s))
}

func (d digester) field(f protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch {
	case f.IsMap():
		d.entries(f, v.Map())
	case f.IsList():
		list := v.List()
		d.number(uint64(list.Len()))
		for i := range list.Len() {
			d.value(f.Kind(), list.Get(i))
		}
	default:
		d.value(f.Kind(), v)
	}
}

func (d digester) entries(f protoreflect.FieldDescriptor, m protoreflect.Map) {
	var sums []string
	m.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		entry := digester{sha256.New()}
		entry.value(f.MapKey().Kind(), k.Value())
		entry.value(f.MapValue().Kind(), v)
		sums = append(sums, string(entry.hash.Sum(nil)))
		return true
	})
	slices.Sort(sums)
	d.number(uint64(len(sums)))
	for _, sum := range sums {
		d.text(sum)
	}
}

func (d digester) value(kind protoreflect.Kind, v protoreflect.Value) {
	d.number(uint64(kind))
	switch kind {
	case protoreflect.BoolKind:
		if v.Bool() {
			d.number(1)
		} else {
			d.number(0)
		}
	case protoreflect.StringKind:
		d.text(v.String())
	case protoreflect.BytesKind:
		d.text(string(v.Bytes()))
	case protoreflect.EnumKind:
		d.number(uint64(v.Enum()))
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		d.number(math.Float64bits(v.Float()))
	case protoreflect.MessageKind, protoreflect.GroupKind:
		sum := digestOf(v.Message())
		d.text(string(sum[:]))
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind:
		d.number(v.Uint())
	default:
		d.number(uint64(v.Int()))
	}
}
