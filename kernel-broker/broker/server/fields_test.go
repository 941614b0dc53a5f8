// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/emptypb"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
)

// What of a request could reach a kernel's command line, a command, the path of
// a file or Slurm's comments is refused where it comes in. Here every text of
// every request is tried: a field that is new is refused whatever means
// something there, or stands below with the reason why it need not.

// hostile are values that mean something to one of those.
var hostile = []string{
	"../../etc/passwd", "/etc/passwd", "..", "a b", "a;b", "a&b", "a|b", "$(id)", "`id`", "a\nb", "a\rb", "a\tb", "a\x00b", "a'b", `a"b`, `a\b`,
	"%s%n", "\x1b[2J", "é", "a,b;c", "{node}", "a>b", "*", "-x y", " a", strings.Repeat("a", 70_000),
}

// free are texts that may be anything, and why that does no harm. A name that
// ends in a dot stands for all below it.
var free = map[string]string{
	"ApplyProfile.profile.application":              shown,
	"ApplyProfile.profile.description":              shown,
	"ApplyProfile.profile.versions.quarantine.":     "not taken from a request",
	"ApplyProfile.profile.versions.retired.":        "not taken from a request",
	"ApplyProfile.profile.history.":                 "not taken from a request",
	"ApplyProfile.profile.versions.measured.reason": reasons,
	"ApplyProfile.reason":                           reasons,
	"PromoteVersion.reason":                         reasons,
	"QuarantineVersion.reason":                      reasons,
	"ReleaseQuarantine.reason":                      reasons,
	"RetireProfile.reason":                          reasons,
	"RevokeNode.reason":                             reasons,
	"SetHardwareRule.rule.author":                   "not taken from a request",
	"SetHardwareRule.rule.reason":                   reasons,
	"SignVersion.reason":                            reasons,
	"Connect.report.":                               reasons,
	"Connect.slurmd.":                               reasons,
	"Connect.run.":                                  reasons,
	"DeliverRun.partial":                            reasons,
	"Connect.hello.agent_version":                   shown,
	"TestPolicy.user":                               "an argument of getent, which package nss looks at",
	"TestPolicy.object":                             "compared, and quoted in the answer to who asked",
	"TestPolicy.account":                            "compared, and quoted in the answer to who asked",
	"TestPolicy.partition":                          "compared, and quoted in the answer to who asked",
}

const (
	shown   = "shown by kernelctl and in reports, which make control characters harmless"
	reasons = "made one short line of printable characters; commands get it as one argument"
)

// allowed are values of the above that a text may have: ids are compared, a
// parameter's value may be a path, what follows the root's device is shown, and why
// modules are not loaded is one line, as reasons are.
var allowed = map[string][]string{
	"ApplyProfile.profile.versions.kernel.arguments": {"../../etc/passwd", "/etc/passwd", "..", "%s%n", "{node}", "*"},
	"Connect.hello.inventory.root_device":            {"/etc/passwd"},
	"Connect.hello.inventory.initrd_root":            {"/etc/passwd"},
	"Connect.hello.modules_fault":                    append(slices.Clone(words), "a b", "-x y"),
	"ApplyProfile.request_id":                        words,
	"PromoteVersion.request_id":                      words,
	"QuarantineVersion.request_id":                   words,
	"ReleaseQuarantine.request_id":                   words,
	"RetireProfile.request_id":                       words,
	"SignVersion.request_id":                         words,
	"RequestRun.request_id":                          words,
	"SetHardwareRule.rule.board":                     {"*"},
	"SetHardwareRule.rule.firmware":                  {"*"},
	"SetHardwareRule.rule.nic":                       {"*"},
}

// words are what of it is printable and has no white space.
var words = slices.DeleteFunc(slices.Clone(hostile), func(text string) bool {
	return len(text) > 100 || strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' })
})

// requests has one of each method, of which one field at a time is made hostile.
// As they are they get through all that looks at their form; n is another number
// each time, since a change is made once.
func requests(n int) map[string]proto.Message {
	digest, id := digestOf(nil), fmt.Sprint("r", n)
	p := apiProfile(fmt.Sprint("other-", n), digest, 3)
	p.Versions[0].Kernel.InitrdDigest, p.Versions[0].Kernel.InitrdSize = digest, 3
	p.Versions[0].Kernel.ModulesDigest, p.Versions[0].Kernel.ModulesSize = digest, 3
	p.Versions[0].Kernel.Arguments, p.Versions[0].Kernel.Drivers = []string{"quiet"}, []string{"ext4"}
	p.Versions[0].Documents = []*api.Document{{Name: "report", Digest: digest, Size: 3}}
	figure := &api.Estimate{Percent: -1, LowPercent: -1, HighPercent: -1}
	p.Versions[0].Measured = &api.Measurement{Outcome: api.Outcome_OUTCOME_BENEFIT, Workload: "w", Metric: "m", ReportDigest: digest, ToStock: &api.Gain{Kernel: figure}}
	file := &api.RunFile{Name: "result.json", Digest: digest}
	token, err := mtls.NewToken("n1", strings.Repeat("ab", 32))
	if err != nil {
		panic(err)
	}
	return map[string]proto.Message{
		"ApplyProfile":      &api.ApplyProfileRequest{RequestId: id, Profile: p},
		"GetProfile":        &api.GetProfileRequest{Name: "mitgcm"},
		"CheckProfile":      &api.CheckProfileRequest{Profile: "mitgcm"},
		"ReleaseQuarantine": &api.ReleaseQuarantineRequest{RequestId: id, Name: "mitgcm", Version: 9},
		"RetireProfile":     &api.RetireProfileRequest{RequestId: id, Name: "mitgcm", Version: 9},
		"PromoteVersion":    &api.PromoteVersionRequest{RequestId: id, Name: "mitgcm", Version: 1},
		"QuarantineVersion": &api.QuarantineVersionRequest{RequestId: id, Name: "mitgcm", Version: 9},
		"SignVersion":       &api.SignVersionRequest{RequestId: id, Name: "mitgcm", Version: 9},
		"UploadArtifact":    &api.UploadArtifactRequest{Digest: digest},
		"FetchArtifact":     &api.FetchArtifactRequest{Digest: digest},
		"GetArtifact":       &api.GetArtifactRequest{Digest: digest},
		"EnsureKernel":      &api.EnsureKernelRequest{JobId: 7, Profile: "mitgcm", Nodes: []string{"n1"}},
		"NoteReboot":        &api.NoteRebootRequest{Nodes: []string{"n1"}},
		"Connect":           hello(nil),
		"GetNode":           &api.GetNodeRequest{Name: "n1"},
		"RequestRun":        &api.RequestRunRequest{RequestId: id, Profile: "mitgcm", Collectors: []string{"io"}},
		"UploadRunFile":     &api.UploadRunFileRequest{Node: "n1", RunId: 1, File: file},
		"GetRunFile":        &api.GetRunFileRequest{Node: "n1", RunId: 1, Digest: digest},
		"DeliverRun":        &api.DeliverRunRequest{Node: "n1", RunId: 1, Files: []*api.RunFile{file}},
		"CreateNodeToken":   &api.CreateNodeTokenRequest{Node: "n1"},
		"Enrol":             &api.EnrolRequest{Node: "n1", Secret: token.Secret},
		"RevokeNode":        &api.RevokeNodeRequest{Node: "n1"},
		"ListCertificates":  &api.ListCertificatesRequest{Node: "n1"},
		"SetHardwareRule": &api.SetHardwareRuleRequest{Rule: &api.HardwareRule{Name: id, Board: "Dell*",
			Kexec: api.RuleKexec_RULE_KEXEC_NEVER, By: api.BootWay_BOOT_WAY_REBOOT}},
		"RemoveHardwareRule": &api.RemoveHardwareRuleRequest{Name: id},
		"TestPolicy":         &api.TestPolicyRequest{Action: "use", Object: "mitgcm"},
	}
}

// texts are the paths of all strings below a message, through what a request may
// hold of one.
func texts(d protoreflect.MessageDescriptor, above string) (paths []string) {
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		path := above + string(f.Name())
		switch {
		case f.Kind() == protoreflect.StringKind:
			paths = append(paths, path)
		case f.Kind() == protoreflect.MessageKind && !f.IsMap() && f.Message().ParentFile().Package() == d.ParentFile().Package():
			paths = append(paths, texts(f.Message(), path+".")...)
		}
	}
	return paths
}

// set writes a text into a message, into the first of a list.
func set(m protoreflect.Message, path, text string) {
	name, rest, deeper := strings.Cut(path, ".")
	f := m.Descriptor().Fields().ByName(protoreflect.Name(name))
	switch {
	case deeper && f.IsList():
		list := m.Mutable(f).List()
		if list.Len() == 0 {
			list.AppendMutable()
		}
		set(list.Get(0).Message(), rest, text)
	case deeper:
		set(m.Mutable(f).Message(), rest, text)
	case f.IsList():
		list := m.Mutable(f).List()
		list.Truncate(0)
		list.Append(protoreflect.ValueOfString(text))
	default:
		m.Set(f, protoreflect.ValueOfString(text))
	}
}

func isFree(field string) bool {
	for name := range free {
		if name == field || strings.HasSuffix(name, ".") && strings.HasPrefix(field, name) {
			return true
		}
	}
	return false
}

func TestHostileTexts(t *testing.T) {
	b := serveBoundary(t)
	fields, count := map[string]bool{}, 0
	for _, m := range b.methods {
		name, input := m.input(t)
		for _, path := range texts(input, "") {
			field := name + "." + path
			if fields[field] = true; isFree(field) {
				continue
			}
			for _, text := range hostile {
				if slices.Contains(allowed[field], text) {
					continue
				}
				count++
				request := requests(count)[name]
				if request == nil {
					t.Fatalf("%s: no request to try it in", field)
				}
				set(request.ProtoReflect(), path, text)
				if err := b.send(t, m, request, soon); !refusedAsText(err) {
					t.Errorf("%s: %.40q gives %v", field, text, err)
				}
			}
		}
		// As it is it is not refused for its form: else nothing is shown.
		count++
		if request := requests(count)[name]; request != nil {
			if err := b.send(t, m, request, moment); status.Code(err) == codes.InvalidArgument {
				t.Errorf("%s as it is: %v", name, err)
			}
		}
	}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(free)), slices.Collect(maps.Keys(allowed))) {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(fields)), func(field string) bool { return strings.HasPrefix(field, name) }) {
			t.Errorf("%s is no field of a request", name)
		}
	}
}

// refusedAsText: it is not well formed, or gRPC did not take it for text.
func refusedAsText(err error) bool {
	return status.Code(err) == codes.InvalidArgument || status.Code(err) == codes.Internal && !isOurs(err)
}

// input is the short name of a method and what it takes.
func (m method) input(t *testing.T) (string, protoreflect.MessageDescriptor) {
	t.Helper()
	full := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(m.name, "/"), "/", "."))
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(full)
	if err != nil {
		t.Fatal(err)
	}
	d, is := found.(protoreflect.MethodDescriptor)
	if !is {
		t.Fatalf("%s is no method", full)
	}
	if d.ParentFile().Package() != api.File_kernelbroker_v1_node_proto.Package() {
		return string(d.Name()), (&emptypb.Empty{}).ProtoReflect().Descriptor() // gRPC's own
	}
	return string(d.Name()), d.Input()
}

// send makes a call as root of the broker's host, and as a node's agent where it
// is one's.
func (b *boundary) send(t *testing.T, m method, request proto.Message, limit time.Duration) error {
	t.Helper()
	body, err := proto.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	who := byte(0)
	if strings.HasSuffix(m.name, "/Connect") {
		who = 1
	}
	return b.callWithin(t.Context(), limit, m, who, [][]byte{body})
}
