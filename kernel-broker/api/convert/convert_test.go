// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

var moments = rapid.Custom(func(t *rapid.T) time.Time {
	if rapid.Bool().Draw(t, "zero") {
		return time.Time{}
	}
	return time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "seconds"), rapid.Int64Range(0, 999999999).Draw(t, "nanoseconds")).UTC()
})

// texts draws a list that is nil when it is empty: protobuf knows no other.
func texts(t *rapid.T, label string) []string {
	if list := rapid.SliceOfN(rapid.String(), 0, 3).Draw(t, label); len(list) > 0 {
		return list
	}
	return nil
}

var kernels = rapid.Custom(func(t *rapid.T) kb.Kernel {
	text, number := rapid.String(), rapid.Uint64()
	return kb.Kernel{
		Profile: text.Draw(t, "profile"), Version: rapid.Uint32().Draw(t, "version"),
		ImageDigest: text.Draw(t, "image"), ImageSize: number.Draw(t, "image size"),
		InitrdDigest: text.Draw(t, "initrd"), InitrdSize: number.Draw(t, "initrd size"),
		ModulesDigest: text.Draw(t, "modules"), ModulesSize: number.Draw(t, "modules size"),
		Arguments: texts(t, "arguments"), BuildID: text.Draw(t, "build id"), Release: text.Draw(t, "release"),
		Architecture: text.Draw(t, "architecture"), Drivers: texts(t, "drivers"), MinMemoryMiB: number.Draw(t, "memory"),
		SystemCores: rapid.Uint32().Draw(t, "system cores"),
	}
})

var versions = rapid.Custom(func(t *rapid.T) kb.ProfileVersion {
	v := kb.ProfileVersion{
		Kernel: kernels.Draw(t, "kernel"), RegisteredAt: moments.Draw(t, "registered"),
		BootFailures: rapid.Uint32().Draw(t, "failures"),
	}
	if raw := rapid.SliceOfN(rapid.Byte(), 0, 5).Draw(t, "envelope"); len(raw) > 0 {
		v.Envelope = raw
	}
	if rapid.Bool().Draw(t, "quarantined") {
		v.Quarantine = &kb.Quarantine{Reason: rapid.String().Draw(t, "reason"), Since: moments.Draw(t, "since")}
	}
	if rapid.Bool().Draw(t, "retired") {
		v.Retired = &kb.Retirement{Reason: rapid.String().Draw(t, "reason"), Since: moments.Draw(t, "since")}
	}
	for range rapid.IntRange(0, 2).Draw(t, "documents") {
		v.Documents = append(v.Documents, kb.Document{
			Name: rapid.String().Draw(t, "document"), Digest: rapid.String().Draw(t, "digest"), Size: rapid.Uint64().Draw(t, "size")})
	}
	if rapid.Bool().Draw(t, "measured") {
		m := measurements.Draw(t, "measurement")
		v.Measured = &m
	}
	return v
})

var estimates = rapid.Custom(func(t *rapid.T) *kb.Estimate {
	figure := rapid.Float64()
	return &kb.Estimate{Percent: figure.Draw(t, "percent"), Low: figure.Draw(t, "low"), High: figure.Draw(t, "high")}
})

var gains = rapid.Custom(func(t *rapid.T) *kb.Gain {
	g := &kb.Gain{Kernel: *estimates.Draw(t, "kernel"), Chance: rapid.Bool().Draw(t, "chance"), Unequal: rapid.Bool().Draw(t, "unequal"),
		Source: rapid.SampledFrom([]kb.ShareSource{"", kb.ShareOfWorkload, kb.ShareOfRuns}).Draw(t, "source")}
	if rapid.Bool().Draw(t, "share") {
		g.Share, g.Whole = estimates.Draw(t, "share"), estimates.Draw(t, "whole")
	}
	if runs := rapid.SliceOfN(rapid.Uint64(), 0, 3).Draw(t, "runs"); len(runs) > 0 {
		g.Runs = runs
	}
	return g
})

var measurements = rapid.Custom(func(t *rapid.T) kb.Measurement {
	text := rapid.String()
	m := kb.Measurement{
		Outcome: rapid.SampledFrom([]kb.Outcome{"", kb.OutcomeBenefit, kb.OutcomeNoBenefit, kb.OutcomeRefused}).Draw(t, "outcome"),
		Reason:  text.Draw(t, "reason"), Workload: text.Draw(t, "workload"), Metric: text.Draw(t, "metric"), Report: text.Draw(t, "report"),
	}
	if rapid.Bool().Draw(t, "slim") {
		m.ToSlim = gains.Draw(t, "to slim")
	}
	if rapid.Bool().Draw(t, "stock") {
		m.ToStock = gains.Draw(t, "to stock")
	}
	return m
})

var profiles = rapid.Custom(func(t *rapid.T) kb.Profile {
	p := kb.Profile{
		Name: rapid.String().Draw(t, "name"), Application: rapid.String().Draw(t, "application"),
		Description: rapid.String().Draw(t, "description"), DefaultVersion: rapid.Uint32().Draw(t, "default"),
		Reuse:        rapid.SampledFrom([]kb.ReusePolicy{"", kb.ReuseNever, kb.ReuseSameProfile}).Draw(t, "reuse"),
		Fallback:     rapid.SampledFrom([]kb.FallbackPolicy{"", kb.FallbackHold, kb.FallbackRequeue}).Draw(t, "fallback"),
		BootAttempts: rapid.Uint32().Draw(t, "attempts"),
		BootTimeout:  time.Duration(rapid.Int64Range(0, 1<<40).Draw(t, "timeout")) * time.Millisecond,
	}
	if list := rapid.SliceOfN(versions, 0, 3).Draw(t, "versions"); len(list) > 0 {
		p.Versions = list
	}
	return p
})

// There and back, over the wire: nothing is lost.
func TestProfileRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := profiles.Draw(t, "profile")
		wire, err := proto.Marshal(ProfileToProto(before))
		if err != nil {
			t.Fatal(err)
		}
		message := &api.Profile{}
		if err := proto.Unmarshal(wire, message); err != nil {
			t.Fatal(err)
		}
		if after := ProfileFromProto(message); !reflect.DeepEqual(before, after) {
			t.Fatalf("before %+v\nafter  %+v", before, after)
		}
	})
}

func TestInventoryRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := kb.Inventory{
			Architecture: rapid.String().Draw(t, "architecture"), MemoryMiB: rapid.Uint64().Draw(t, "memory"),
			CPUs: rapid.Uint32().Draw(t, "cpus"), RootDevice: rapid.String().Draw(t, "root"),
			RootFilesystem: rapid.String().Draw(t, "filesystem"), Drivers: texts(t, "drivers"),
		}
		if after := InventoryFromProto(InventoryToProto(before)); !reflect.DeepEqual(before, after) {
			t.Fatalf("before %+v\nafter  %+v", before, after)
		}
	})
}

// Whatever a client sends becomes something, without a panic.
func TestProfileFromProtoIsTotal(t *testing.T) {
	for _, p := range []*api.Profile{
		nil, {}, {Versions: []*api.ProfileVersion{nil, {}}},
		{Reuse: 99, Fallback: -1, BootTimeoutMs: math.MaxUint64},
	} {
		if err := ProfileFromProto(p).Validate(); err == nil {
			t.Errorf("profile %v is valid", p)
		}
	}
}

// What a client leaves out of a measurement, or an enum of a later release, is
// refused and not taken for a figure.
func TestMeasurementFromProtoIsTotal(t *testing.T) {
	if m := MeasurementFromProto(nil); m != nil {
		t.Errorf("nothing is %+v", m)
	}
	whole := func(change func(*api.Measurement)) *api.Measurement {
		one := &api.Estimate{Percent: 1, LowPercent: 1, HighPercent: 1}
		m := &api.Measurement{Outcome: api.Outcome_OUTCOME_BENEFIT, Workload: "w", Metric: "m", ReportDigest: "sha256:" + strings.Repeat("7", 64),
			ToSlim: &api.Gain{Kernel: one, KernelShare: one, Whole: one, ShareSource: api.ShareSource_SHARE_SOURCE_WORKLOAD}}
		change(m)
		return m
	}
	if err := MeasurementFromProto(whole(func(*api.Measurement) {})).Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*api.Measurement){
		"nothing in it": func(m *api.Measurement) { proto.Reset(m) }, "no outcome": func(m *api.Measurement) { m.Outcome = 0 },
		"an outcome of later": func(m *api.Measurement) { m.Outcome = 99 }, "a source of later": func(m *api.Measurement) { m.ToSlim.ShareSource = 99 },
		"no figure": func(m *api.Measurement) { m.ToSlim.Kernel = nil }, "an empty gain": func(m *api.Measurement) { m.ToStock = &api.Gain{} },
		"no share": func(m *api.Measurement) { m.ToSlim.KernelShare = nil }, "no whole": func(m *api.Measurement) { m.ToSlim.Whole = nil },
		"no number": func(m *api.Measurement) { m.ToSlim.Kernel.Percent = math.NaN() },
	} {
		if err := MeasurementFromProto(whole(change)).Validate(); err == nil {
			t.Errorf("%s: it is valid", name)
		}
	}
}

// Each value of the API's enums but the zero has one of the domain's.
func TestEnumsAreComplete(t *testing.T) {
	if want := len(api.ReusePolicy_name) - 1; len(reuseToProto) != want || len(reuseFromProto) != want {
		t.Errorf("reuse: %d values are converted, the API has %d", len(reuseToProto), want)
	}
	if want := len(api.FallbackPolicy_name) - 1; len(fallbackToProto) != want || len(fallbackFromProto) != want {
		t.Errorf("fallback: %d values are converted, the API has %d", len(fallbackToProto), want)
	}
	if want := len(api.Outcome_name) - 1; len(outcomeToProto) != want || len(outcomeFromProto) != want {
		t.Errorf("outcomes: %d values are converted, the API has %d", len(outcomeToProto), want)
	}
	if want := len(api.ShareSource_name) - 1; len(sourceToProto) != want || len(sourceFromProto) != want {
		t.Errorf("sources of shares: %d values are converted, the API has %d", len(sourceToProto), want)
	}
	if want := len(api.NodePhase_name) - 1; len(phases) != want {
		t.Errorf("phases: %d values are converted, the API has %d", len(phases), want)
	}
	if want := len(api.SwitchState_name) - 1; len(progressFromProto) != want {
		t.Errorf("reports: %d values are converted, the API has %d", len(progressFromProto), want)
	}
}

// What a switch reports means the same at both ends, also the numbers that an
// agent of an earlier release sends.
func TestSwitchReports(t *testing.T) {
	for number, want := range map[int32]kb.Progress{1: kb.ProgressLoading, 2: kb.ProgressLoaded, 3: kb.ProgressBooting, 4: kb.ProgressFailed} {
		got, err := SwitchReportFromProto(&api.SwitchReport{Generation: 7, State: api.SwitchState(number), Failure: 2, Detail: "a\nb"})
		if err != nil || got != (kb.SwitchReport{Generation: 7, Progress: want, Kind: kb.FailureKernel, Detail: "a b"}) {
			t.Errorf("%d: %+v, %v", number, got, err)
		}
		if back := SwitchReportToProto(got).GetReport().GetState(); int32(back) != number {
			t.Errorf("%s is sent as %v", got.Progress, back)
		}
	}
	if idle := SwitchReportToProto(kb.SwitchReport{}).GetReport(); idle.GetState() != api.SwitchState_SWITCH_STATE_FETCHING || idle.GetFailure() != 0 {
		t.Errorf("an agent that has nothing yet sends %v", idle)
	}
	for _, state := range []api.SwitchState{0, 5, -1} {
		if got, err := SwitchReportFromProto(&api.SwitchReport{State: state}); err == nil {
			t.Errorf("%v: %+v", state, got)
		}
	}
}

func TestDesiredRoundTrip(t *testing.T) {
	now := time.Unix(1_790_000_000, 0).UTC()
	rapid.Check(t, func(t *rapid.T) {
		flag, number := rapid.Bool(), rapid.Uint64()
		before := kb.DesiredState{
			Generation: number.Draw(t, "generation"), Token: rapid.String().Draw(t, "token"), Attested: flag.Draw(t, "attested"),
			Running: kb.Ref{Profile: rapid.String().Draw(t, "profile"), Version: rapid.Uint32().Draw(t, "version")},
			Jobs:    []uint32{7}, Lost: []uint32{8}, SlurmdAllowed: flag.Draw(t, "allowed"), SlurmdStart: number.Draw(t, "start"),
			NoBootAwaited: flag.Draw(t, "no boot"), BootKnown: flag.Draw(t, "known"), LoadOnly: flag.Draw(t, "load only"), Reboot: flag.Draw(t, "reboot"),
			Envelope: []byte("e"),
		}
		if flag.Draw(t, "waits") {
			before.SlurmdWait = time.Duration(rapid.Int64Range(1, 1<<40).Draw(t, "wait"))
			before.SlurmdNotBefore = now.Add(before.SlurmdWait)
		}
		if flag.Draw(t, "boots") {
			k := kernels.Draw(t, "kernel")
			before.Kernel = &k
		}
		if after := DesiredFromProto(DesiredToProto(&before).GetDesired(), now); !reflect.DeepEqual(before, after) {
			t.Fatalf("before %+v\nafter  %+v", before, after)
		}
	})
}

// The wait counts from the node's clock; a broker that gives none, of an earlier
// release, is taken at its time.
func TestSlurmdWait(t *testing.T) {
	broker, node := time.Unix(1_790_000_000, 0).UTC(), time.Unix(1_690_000_000, 0).UTC()
	d := &api.Desired{SlurmdNotBefore: TimeToProto(broker), SlurmdWait: durationpb.New(time.Second)}
	if got := DesiredFromProto(d, node).SlurmdNotBefore; !got.Equal(node.Add(time.Second)) {
		t.Errorf("with a wait: %v", got)
	}
	d.SlurmdWait = nil
	if got := DesiredFromProto(d, node).SlurmdNotBefore; !got.Equal(broker) {
		t.Errorf("without: %v", got)
	}
}

func TestDesiredRunsRoundTrip(t *testing.T) {
	before := []kb.DesiredRun{{Run: 1, Job: kb.JobID{Job: 7, Restart: 2}, UID: 1000, Cgroup: "s1C5M8FXCH1800", Collectors: []string{"io"}, Ended: true}, {Run: 2, Watched: true}}
	if after := DesiredRunsFromProto(DesiredRunsToProto(before).GetRuns()); !reflect.DeepEqual(before, after) {
		t.Errorf("%+v", after)
	}
}

func TestHelloRoundTrip(t *testing.T) {
	before := kb.Hello{Node: "n1", AgentVersion: "1", SlurmdRunning: true, Inventory: kb.Inventory{Architecture: "x86_64", CPUs: 2},
		Boot: kb.Boot{BootID: "b", BuildID: "cd", Release: "6.1", Token: "t", BootedAt: time.Unix(1_790_000_000, 0).UTC(), Modules: "sha256:aa", ModulesFault: "no key"}}
	if after := HelloFromProto(HelloToProto(before).GetHello()); !reflect.DeepEqual(before, after) {
		t.Errorf("%+v", after)
	}
}

func TestWord(t *testing.T) {
	for e, want := range map[protoreflect.Enum]string{
		api.ReusePolicy_REUSE_POLICY_SAME_PROFILE:     "same-profile",
		api.NodePhase_NODE_PHASE_UNPROVEN:             "unproven",
		api.AllocationPhase_ALLOCATION_PHASE_ACCEPTED: "accepted",
		api.RunNodeState_RUN_NODE_STATE_UNSPECIFIED:   "unspecified",
		api.NodePhase(99):                             "99",
	} {
		if got := Word(e); got != want {
			t.Errorf("%v: %q", e, got)
		}
	}
}
