// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// marshal writes a message as JSON with plain numbers. protobuf writes 64-bit integers as strings, for JavaScript; other
// readers of JSON prefer numbers. The API's descriptors tell which strings are numbers.
func marshal(message proto.Message) (json.RawMessage, error) {
	text, err := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal(message)
	if err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	var out bytes.Buffer
	if err := writeMessage(&out, text, message.ProtoReflect().Descriptor()); err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	return out.Bytes(), nil
}

// writeMessage copies an object and keeps the order of its fields.
func writeMessage(out *bytes.Buffer, text json.RawMessage, message protoreflect.MessageDescriptor) error {
	if strings.HasPrefix(string(message.FullName()), "google.protobuf.") {
		out.Write(text) // a timestamp, for example, has its own form
		return nil
	}
	return writeParts(out, text, func(name string) (writer, error) {
		field := message.Fields().ByName(protoreflect.Name(name))
		if field == nil {
			return nil, fmt.Errorf("%s has no field %q", message.FullName(), name)
		}
		return fieldWriter(field), nil
	})
}

// writer copies one value.
type writer func(out *bytes.Buffer, text json.RawMessage) error

func fieldWriter(field protoreflect.FieldDescriptor) writer {
	switch {
	case field.IsMap():
		value := valueWriter(field.MapValue())
		return func(out *bytes.Buffer, text json.RawMessage) error {
			return writeParts(out, text, func(string) (writer, error) { return value, nil })
		}
	case field.IsList():
		value := valueWriter(field)
		return func(out *bytes.Buffer, text json.RawMessage) error {
			return writeParts(out, text, func(string) (writer, error) { return value, nil })
		}
	}
	return valueWriter(field)
}

func valueWriter(field protoreflect.FieldDescriptor) writer {
	switch field.Kind() {
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind,
		protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return writeNumber
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return func(out *bytes.Buffer, text json.RawMessage) error { return writeMessage(out, text, field.Message()) }
	}
	return func(out *bytes.Buffer, text json.RawMessage) error {
		out.Write(text)
		return nil
	}
}

// writeNumber removes the quotes of an integer.
func writeNumber(out *bytes.Buffer, text json.RawMessage) error {
	var number json.Number // also accepts a quoted number, and nothing else
	if err := json.Unmarshal(text, &number); err != nil {
		return err
	}
	out.WriteString(number.String())
	return nil
}

// writeParts copies an object or a list element by element; of returns the writer for a field.
func writeParts(out *bytes.Buffer, text json.RawMessage, of func(name string) (writer, error)) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	begin, err := decoder.Token()
	if err != nil {
		return err
	}
	object := begin == json.Delim('{')
	out.WriteString(fmt.Sprint(begin))
	for first := true; decoder.More(); first = false {
		if !first {
			out.WriteByte(',')
		}
		name := ""
		if object {
			key, err := decoder.Token()
			if err != nil {
				return err
			}
			name = fmt.Sprint(key)
			quoted, err := json.Marshal(name)
			if err != nil {
				return err
			}
			out.Write(append(quoted, ':'))
		}
		if err := writePart(out, decoder, name, of); err != nil {
			return err
		}
	}
	end, err := decoder.Token()
	if err == nil {
		out.WriteString(fmt.Sprint(end))
	}
	return err
}

func writePart(out *bytes.Buffer, decoder *json.Decoder, name string, of func(string) (writer, error)) error {
	write, err := of(name)
	if err != nil {
		return err
	}
	var part json.RawMessage
	if err := decoder.Decode(&part); err != nil {
		return err
	}
	return write(out, part)
}
