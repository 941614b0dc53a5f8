// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// marshal writes a message as JSON like protobuf, but with plain numbers. protobuf writes 64-bit integers as strings, for
// JavaScript; other readers of JSON prefer numbers.
func marshal(message proto.Message) (json.RawMessage, error) {
	var out bytes.Buffer
	if err := writeMessage(&out, message.ProtoReflect()); err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	return out.Bytes(), nil
}

// writeMessage writes the fields in the order of the API's descriptors, also those with their default.
func writeMessage(out *bytes.Buffer, m protoreflect.Message) error {
	if strings.HasPrefix(string(m.Descriptor().FullName()), "google.protobuf.") {
		text, err := protojson.Marshal(m.Interface()) // a timestamp, for example, has its own form
		out.Write(text)
		return err
	}
	separator := byte('{')
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if field.HasPresence() && !m.Has(field) {
			continue
		}
		out.WriteByte(separator)
		fmt.Fprintf(out, "%q:", field.Name())
		if err := writeField(out, field, m.Get(field)); err != nil {
			return err
		}
		separator = ','
	}
	if separator == '{' {
		out.WriteByte('{')
	}
	out.WriteByte('}')
	return nil
}

func writeField(out *bytes.Buffer, field protoreflect.FieldDescriptor, v protoreflect.Value) error {
	switch {
	case field.IsList():
		out.WriteByte('[')
		for i := range v.List().Len() {
			if i > 0 {
				out.WriteByte(',')
			}
			if err := writeValue(out, field, v.List().Get(i)); err != nil {
				return err
			}
		}
		out.WriteByte(']')
		return nil
	case field.IsMap():
		entries := map[string]protoreflect.Value{}
		v.Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
			entries[key.String()] = value
			return true
		})
		out.WriteByte('{')
		for i, key := range slices.Sorted(maps.Keys(entries)) {
			if i > 0 {
				out.WriteByte(',')
			}
			if err := encode(out, key); err != nil {
				return err
			}
			out.WriteByte(':')
			if err := writeValue(out, field.MapValue(), entries[key]); err != nil {
				return err
			}
		}
		out.WriteByte('}')
		return nil
	}
	return writeValue(out, field, v)
}

func writeValue(out *bytes.Buffer, field protoreflect.FieldDescriptor, v protoreflect.Value) error {
	if field.Message() != nil {
		return writeMessage(out, v.Message())
	}
	if field.Enum() != nil {
		if known := field.Enum().Values().ByNumber(v.Enum()); known != nil {
			return encode(out, known.Name())
		}
	}
	if field.Kind() == protoreflect.BytesKind {
		return encode(out, append([]byte{}, v.Bytes()...)) // never null
	}
	return encode(out, v.Interface())
}

// encode writes a value without the escapes that only HTML needs.
func encode(out *bytes.Buffer, v any) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	out.Truncate(len(bytes.TrimRight(out.Bytes(), "\n")))
	return err
}
