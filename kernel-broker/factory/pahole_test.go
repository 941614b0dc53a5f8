package factory

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A tool that somebody installs on the builder's host must not change kernels
// that have no use for it: pahole's version stands in each configuration.
func TestPahole(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	for _, version := range []string{"v1.24", "v1.25"} {
		program := filepath.Join(bin, "pahole")
		write(t, program, "#!/bin/sh\necho "+version+"\n")
		if err := os.Chmod(program, 0o755); err != nil {
			t.Fatal(err)
		}
		f := newFakeFactory(t)
		without := f.plan()
		if inputs, err := (ConfigureInput{Variant: Plain}).Inputs(without); err != nil || inputs["pahole"] != "" || !slices.Contains(without.tools(Plain), "PAHOLE=not-used") {
			t.Errorf("without BTF: %v, %v, %v", inputs, without.tools(Plain), err)
		}
		f.fragment("btf", "# For BPF.\nCONFIG_DEBUG_INFO_BTF=y\n")
		f.recipe("base", "btf")
		with := f.plan()
		if inputs, err := (ConfigureInput{Variant: Plain}).Inputs(with); err != nil || inputs["pahole"] != version || slices.Contains(with.tools(Plain), "PAHOLE=not-used") {
			t.Errorf("with BTF: %v, %v, %v", inputs, with.tools(Plain), err)
		}
		if with.Key == without.Key {
			t.Error("the key is the same with and without")
		}
	}
}
