// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

// sample has every shape of a 64-bit integer, and strings that look like one.
const sample = `name: "sample.proto" package: "sample" syntax: "proto3"
message_type: {
  name: "M"
  field: {name: "a" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL}
  field: {name: "b" number: 2 type: TYPE_UINT64 label: LABEL_REPEATED}
  field: {name: "c" number: 3 type: TYPE_MESSAGE type_name: ".sample.M.CEntry" label: LABEL_REPEATED}
  field: {name: "d" number: 4 type: TYPE_STRING label: LABEL_OPTIONAL}
  field: {name: "e" number: 5 type: TYPE_MESSAGE type_name: ".sample.M" label: LABEL_REPEATED}
  field: {name: "f" number: 6 type: TYPE_SFIXED64 label: LABEL_OPTIONAL}
  field: {name: "g" number: 7 type: TYPE_BYTES label: LABEL_OPTIONAL}
  nested_type: {
    name: "CEntry" options: {map_entry: true}
    field: {name: "key" number: 1 type: TYPE_UINT64 label: LABEL_OPTIONAL}
    field: {name: "value" number: 2 type: TYPE_FIXED64 label: LABEL_OPTIONAL}
  }
}`

func sampleMessage(t *testing.T) protoreflect.MessageDescriptor {
	t.Helper()
	file := &descriptorpb.FileDescriptorProto{}
	if err := prototext.Unmarshal([]byte(sample), file); err != nil {
		t.Fatal(err)
	}
	d, err := protodesc.NewFile(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d.Messages().ByName("M")
}

func TestNumbers(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`{}`, `{"a":0,"b":[],"c":{},"d":"","e":[],"f":0,"g":""}`},
		{`{"a":"-9223372036854775808","b":["18446744073709551615","0"],"c":{"7":"8"},"d":"123","f":"5","g":"MTIz",
		   "e":[{"a":"1","d":"<\"9\">"},{}]}`,
			`{"a":-9223372036854775808,"b":[18446744073709551615,0],"c":{"7":8},"d":"123",` +
				`"e":[{"a":1,"b":[],"c":{},"d":"<\"9\">","e":[],"f":0,"g":""},{"a":0,"b":[],"c":{},"d":"","e":[],"f":0,"g":""}],"f":5,"g":"MTIz"}`},
	} {
		m := dynamicpb.NewMessage(sampleMessage(t))
		if err := protojson.Unmarshal([]byte(c.in), m); err != nil {
			t.Fatal(err)
		}
		got, err := marshal(m)
		if err != nil || string(got) != c.want {
			t.Errorf("marshal gives %v\n%s\nwant\n%s", err, got, c.want)
		}
		if err := protojson.Unmarshal(got, dynamicpb.NewMessage(sampleMessage(t))); err != nil {
			t.Errorf("protobuf cannot read it: %v", err)
		}
	}
}

// kernelctl shows no number of the API in quotes, and the meaning stays the same.
func TestNumbersOfTheAPI(t *testing.T) {
	at := timestamppb.New(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	for _, m := range []proto.Message{
		&api.Node{Name: "n1", Kexecs: 3, Inventory: &api.Inventory{MemoryMib: 1024}},
		&api.Profile{Name: "123", BootTimeoutMs: 60_000, Versions: []*api.ProfileVersion{
			{Kernel: &api.KernelSpec{Version: 1, ImageSize: 1 << 40, BuildId: "0123"}, RegisteredAt: at}}},
	} {
		got, err := marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		// What has no number in the API has its word, which protobuf does not read.
		back := m.ProtoReflect().New().Interface()
		got = regexp.MustCompile(`"unspecified"`).ReplaceAll(got, []byte("0"))
		if err := protojson.Unmarshal(got, back); err != nil || !proto.Equal(m, back) {
			t.Errorf("%s is not the same: %v", got, err)
		}
	}
	var node struct{ Kexecs any }
	text, err := marshal(&api.Node{Kexecs: 3})
	if err != nil || json.Unmarshal(text, &node) != nil || node.Kexecs != 3.0 {
		t.Errorf("kexecs is %#v in %s, %v", node.Kexecs, text, err)
	}
}

func TestNumbersInOutput(t *testing.T) {
	message := &api.Node{Name: "42", Kexecs: 3}
	for output, words := range map[string][]string{
		outputJSON: {"\"kexecs\": 3,\n", `"name": "42"`}, outputYAML: {"kexecs: 3\n", "name: \"42\"\n"},
	} {
		var out strings.Builder
		a := &app{Invocation: Invocation{Stdout: &out}, output: output}
		if err := a.show(message, nil); err != nil {
			t.Fatal(err)
		}
		if err := showList(a, "nodes", []*api.Node{message}, nil); err != nil {
			t.Fatal(err)
		}
		for _, word := range words {
			if strings.Count(out.String(), word) != 2 {
				t.Errorf("%s: %q is not in it twice:\n%s", output, word, out.String())
			}
		}
	}
}

// Texts come from nodes and users. In data they are unchanged but harmless to a terminal.
func TestTextsInOutput(t *testing.T) {
	for _, text := range []string{"\x1b[2J", "\u007f", "\u009b2J", "\ufffe", "ä \u2028 \U0010ffff"} {
		for _, output := range []string{outputJSON, outputYAML} {
			var out strings.Builder
			a := &app{Invocation: Invocation{Stdout: &out}, output: output}
			if err := a.show(&api.Node{Name: text}, nil); err != nil {
				t.Errorf("%s of %q: %v", output, text, err)
				continue
			}
			var back struct{ Name string }
			if err := yaml.Unmarshal([]byte(out.String()), &back); err != nil || back.Name != text || strings.ContainsAny(out.String(), "\x1b\u007f\u009b") {
				t.Errorf("%s of %q is %q, %v", output, text, out.String(), err)
			}
		}
	}
}
