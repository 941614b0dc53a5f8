// SPDX-License-Identifier: Apache-2.0

package server

import (
	"math"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
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
		Arguments: texts(t, "arguments"), BuildID: text.Draw(t, "build id"), Release: text.Draw(t, "release"),
		Architecture: text.Draw(t, "architecture"), Drivers: texts(t, "drivers"), MinMemoryMiB: number.Draw(t, "memory"),
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
	return v
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

// Each value of the API's enums but the zero has one of the domain's.
func TestEnumsAreComplete(t *testing.T) {
	if want := len(api.ReusePolicy_name) - 1; len(reuseToProto) != want || len(reuseFromProto) != want {
		t.Errorf("reuse: %d values are converted, the API has %d", len(reuseToProto), want)
	}
	if want := len(api.FallbackPolicy_name) - 1; len(fallbackToProto) != want || len(fallbackFromProto) != want {
		t.Errorf("fallback: %d values are converted, the API has %d", len(fallbackToProto), want)
	}
}
