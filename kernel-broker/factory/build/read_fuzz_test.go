// SPDX-License-Identifier: Apache-2.0

package build

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/tests/support/imagetest"
)

// FuzzParseManifest: kernel.json comes with kernels of other hosts too. Its files
// are beside it, and what is read is written as it was.
func FuzzParseManifest(f *testing.F) {
	f.Add([]byte(`{"format":1,"name":"slim","image":{"name":"bzImage","digest":"sha256:ab","size":3},"config":{"name":"config"},"system_map":{"name":"../x"},"drivers":{"builtin":["ext4"],"modular":null}}`))
	f.Add([]byte(`{"format":1,"image":{"name":"/etc/passwd"},"profile":{},"sections":{}}`))
	f.Add([]byte(`{"format":2}`))
	f.Add([]byte("null"))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := ParseManifest(text)
		if err != nil {
			return
		}
		names := []string{m.Image.Name, m.Config.Name}
		if m.SystemMap != nil {
			names = append(names, m.SystemMap.Name)
		}
		for _, name := range names {
			if name != "" && filepath.Join("/dir", name) != "/dir/"+name {
				t.Errorf("%q is no file beside the manifest", name)
			}
		}
		if m.Modules != "" && !filepath.IsLocal(m.Modules) {
			t.Errorf("modules in %q", m.Modules)
		}
		dir := t.TempDir()
		if err := m.Write(dir); err != nil {
			t.Fatal(err)
		}
		back, err := ReadManifest(dir)
		if err != nil {
			t.Fatal(err)
		}
		first, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if second, err := json.Marshal(back); err != nil || string(first) != string(second) {
			t.Errorf("%s became %s, %v", first, second, err)
		}
	})
}

// FuzzOffer is what a build says that its kernel can drive.
func FuzzOffer(f *testing.F) {
	f.Add("kernel/drivers/block/virtio_blk.ko\nkernel/drivers/net/wireless/x.ko\nkernel/net/9p/9pnet-x.ko\n", "ext4.alias=fs-ext4\x00x.license=GPL\x00nfs.alias=fs-nfs4")
	f.Add("", "\x00\x00.alias=fs-")
	f.Fuzz(func(t *testing.T, builtin, info string) {
		dir := t.TempDir()
		one, two := filepath.Join(dir, "builtin"), filepath.Join(dir, "modinfo")
		for path, text := range map[string]string{one: builtin, two: info} {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		modules, err := readBuiltin(one)
		if err != nil {
			t.Fatal(err)
		}
		names := driverNames(modules)
		if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) || len(names) > len(modules) {
			t.Errorf("%q of %q", names, modules)
		}
		found, err := readFilesystemNames(two)
		if err != nil {
			return // one entry is longer than any
		}
		for _, name := range found {
			if strings.Contains(name, "\x00") || !strings.Contains(info, ".alias=fs-"+name) {
				t.Errorf("%q is none of %q", name, info)
			}
		}
	})
}

// FuzzELF: vmlinux and what it is made of are files of a compiler, but an image
// that somebody uploads has one inside, too.
func FuzzELF(f *testing.F) {
	image, err := imagetest.Image(imagetest.Kernel{Release: "6.1", BuildID: strings.Repeat("ab", 20)})
	if err != nil {
		f.Fatal(err)
	}
	at := slices.Index(image, 0x7f)
	f.Add(image[max(at, 0):])
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(program[:4096])
	f.Add([]byte("\x7fELF\x02\x01\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "vmlinux")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if sizes, err := readSections(path); err == nil && sizes.All() < 0 {
			t.Errorf("%+v", sizes)
		}
		if id, err := ReadBuildID(path); err == nil && (id == "" || strings.Trim(id, "0123456789abcdef") != "") {
			t.Errorf("build id %q", id)
		}
	})
}
