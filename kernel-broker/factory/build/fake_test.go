// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bytes"
	"compress/gzip"
	"context"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	fakeRelease = "9.9.0-fake"
	fakeBuildID = "00112233445566778899aabbccddeeff00112233"
)

// fakeMakefile stands in for kbuild's: it answers to the same targets, and
// counts how often it was asked to build.
const fakeMakefile = `
allnoconfig:
	@cp $(KCONFIG_ALLCONFIG) $(O)/.config
olddefconfig:
	@sed -i '/CONFIG_DROPPED=/d' $(O)/.config
prepare:
	@mkdir -p $(O)/include/config $(O)/arch/x86/boot
	@cp files/kernel.release $(O)/include/config/kernel.release
bzImage:
	@echo '$(KCFLAGS)' > @SWITCHES@/flags
	@mkdir -p $(O)/fs $(O)/mm
	@for object in fs/a mm/b; do \
		test -e $(O)/$$object.o && continue; \
		echo "  CC      $$object.o"; \
		if test -e @SWITCHES@/break && test -e $(O).profile/$$(echo $$object | tr / '#').gcda; then \
			echo "$$object.c:3:1: error: 'asm' operand has impossible constraints"; \
			echo "make[2]: *** [scripts/Makefile.build:250: $$object.o] Error 1"; \
			exit 2; \
		fi; \
		test ! -e @SWITCHES@/complain || \
			echo "$$object.c:7:5: warning: the control flow of function 'f' does not match its profile data (counter 'arcs') [-Wcoverage-mismatch]"; \
		touch $(O)/$$object.o; \
	done
	@cd $(O) && rm -f vmlinux.a && ar cDrT vmlinux.a fs/a.o $$(test -e @SWITCHES@/without-b || echo mm/b.o)
	@echo '  CC      one.o'
	@echo '  AS      two.o'
	@echo '  LD      vmlinux'
	@echo build >> @SWITCHES@/builds
	@sleep 0.2
	@test ! -e @SWITCHES@/fail || { echo 'two.c:7: error: no such thing'; exit 1; }
	@test ! -e @SWITCHES@/hang || { touch @SWITCHES@/hangs; sleep 600; }
	@test ! -e @SWITCHES@/slow || { rm @SWITCHES@/slow; \
		for i in $$(seq 600); do test -e @SWITCHES@/go-on && break; sleep 0.1; done; touch @SWITCHES@/slow-done; }
	@cp files/vmlinux files/System.map files/modules.builtin files/modules.builtin.modinfo $(O)
	@if test -e @SWITCHES@/ignore || test -z "$(findstring profile,$(KCFLAGS))"; then \
		cp files/vmlinux.o $(O); else cp files/profiled.o $(O)/vmlinux.o; fi
	@! grep -q VMLINUX_MAP=y $(O)/.config || cp files/System.map $(O)/vmlinux.map
	@cp files/bzImage $(O)/arch/x86/boot/bzImage
`

// fakeFactory is a catalog with one kernel, a source package with a fake tree
// and a cache. Its switches make the build fail or hang.
type fakeFactory struct {
	t        *testing.T
	dir      string
	switches string
	source   SourcePackage
}

func newFakeFactory(t *testing.T) *fakeFactory {
	t.Helper()
	for _, tool := range []string{"make", "tar", "xz", "ld", "ar", "gcc-12"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s, which is in .ci/packages.txt: %v", tool, err)
		}
	}
	f := &fakeFactory{t: t, dir: t.TempDir()}
	f.switches = filepath.Join(f.dir, "switches")
	write(t, filepath.Join(f.switches, "builds"), "")
	f.recipe("base")
	f.fragment("base", "# Reason.\nCONFIG_WANTED=y\n")
	f.makeTarball(fakeImage(t, fakeRelease, fakeBuildID))
	return f
}

func (f *fakeFactory) recipe(fragments ...string) {
	write(f.t, filepath.Join(f.dir, "catalog/kernels/fake.yaml"), fmt.Sprintf(`name: fake
description: A kernel of nothing
source:
  debian: linux-source-9.9
base: tinyconfig
fragments: [%s]
localversion: -fake
compiler: gcc-12
`, strings.Join(fragments, ", ")))
}

func (f *fakeFactory) fragment(name, text string) {
	write(f.t, filepath.Join(f.dir, "catalog/fragments", name+".config"), text)
}

func (f *fakeFactory) makeTarball(image []byte) {
	f.t.Helper()
	const name = "linux-source-9.9"
	tree := filepath.Join(f.dir, name)
	write(f.t, filepath.Join(tree, "Makefile"), strings.ReplaceAll(fakeMakefile, "@SWITCHES@", f.switches))
	for _, part := range tinyParts {
		write(f.t, filepath.Join(tree, part), "CONFIG_TINY=y\nCONFIG_WANTED=n\n")
	}
	write(f.t, filepath.Join(tree, "Kconfig"), "source \"init/Kconfig\"\n")
	write(f.t, filepath.Join(tree, "init/Kconfig"), "config DROPPED\n\tbool\n\tdepends on NOWHERE\n")
	for file, content := range map[string]string{
		"kernel.release":          fakeRelease + "\n",
		"vmlinux":                 string(fakeELF(f.t, fakeBuildID)),
		"vmlinux.o":               string(fakeText(4700, 100, 0)),
		"profiled.o":              string(fakeText(900, 2500, 600)),
		"System.map":              "ffffffff81000000 T _text\n",
		"bzImage":                 string(image),
		"modules.builtin":         "kernel/drivers/block/virtio_blk.ko\nkernel/fs/ext4/ext4.ko\nkernel/sound/beep.ko\n",
		"modules.builtin.modinfo": "ext4.license=GPL\x00ext4.alias=fs-ext4\x00beep.alias=x\x00",
	} {
		write(f.t, filepath.Join(tree, "files", file), content)
	}
	tarball := filepath.Join(f.dir, name+".tar.xz")
	if _, err := output(context.Background(), "tar", "-C", f.dir, "-cJf", tarball, name); err != nil {
		f.t.Fatal(err)
	}
	f.source = SourcePackage{Name: name, Version: "9.9-1", Tarball: tarball}
}

func (f *fakeFactory) builder() *Builder {
	return &Builder{
		Catalog:  filepath.Join(f.dir, "catalog"),
		Cache:    Cache{Dir: filepath.Join(f.dir, "cache")},
		Jobs:     2,
		Progress: Progress{Kernel: "fake"},
		FindSource: func(_ context.Context, name string) (SourcePackage, error) {
			if name != f.source.Name {
				return SourcePackage{}, fmt.Errorf("no package %q", name)
			}
			return f.source, nil
		},
	}
}

// build configures and compiles the plain kernel.
func (f *fakeFactory) build(ctx context.Context, out string) (Manifest, error) {
	f.t.Helper()
	plan, err := f.builder().Plan(ctx, "fake")
	if err != nil {
		f.t.Fatal(err)
	}
	config := f.t.TempDir()
	if err := f.builder().Configure(ctx, plan, ConfigureInput{Variant: Plain}, config); err != nil {
		return Manifest{}, err
	}
	return f.builder().Compile(ctx, plan, CompileInput{Variant: Plain, Config: filepath.Join(config, ConfigFile)}, Watch{}, out)
}

func (f *fakeFactory) set(name string, on bool) {
	f.t.Helper()
	path := filepath.Join(f.switches, name)
	if on {
		write(f.t, path, "")
	} else if err := os.Remove(path); err != nil {
		f.t.Fatal(err)
	}
}

// builds counts how often make was asked for an image.
func (f *fakeFactory) builds() int {
	data, err := os.ReadFile(filepath.Join(f.switches, "builds"))
	if err != nil {
		f.t.Fatal(err)
	}
	return strings.Count(string(data), "\n")
}

// fakeELF is the least file that has a GNU build id among its notes.
func fakeELF(t *testing.T, id string) []byte {
	t.Helper()
	var raw []byte
	if _, err := fmt.Sscanf(id, "%x", &raw); err != nil {
		t.Fatal(err)
	}
	var note bytes.Buffer
	// Another note goes first, whose name has to be filled up.
	put(&note, uint32(6), uint32(3), uint32(1), []byte("Linux\x00\x00\x00"), []byte("abc\x00"))
	put(&note, uint32(4), uint32(len(raw)), uint32(3), []byte("GNU\x00"), raw)
	const header, segment = 64, 56
	var file bytes.Buffer
	put(&file, []byte("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00"),
		uint16(2), uint16(62), uint32(1), uint64(0), uint64(header), uint64(0),
		uint32(0), uint16(header), uint16(segment), uint16(1), uint16(64), uint16(0), uint16(0))
	size := uint64(note.Len())
	put(&file, uint32(4), uint32(4), uint64(header+segment), uint64(0), uint64(0), size, size, uint64(4))
	file.Write(note.Bytes())
	return file.Bytes()
}

// fakeText is an object of nothing but headers of text sections.
func fakeText(text, unlikely, hot uint64) []byte {
	const names = "\x00.text\x00.text.unlikely\x00.text.hot\x00.init.text\x00.names\x00"
	const header, section = 64, 64
	var file bytes.Buffer
	put(&file, []byte("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00"),
		uint16(1), uint16(62), uint32(1), uint64(0), uint64(0), uint64(header+len(names)),
		uint32(0), uint16(header), uint16(0), uint16(0), uint16(section), uint16(6), uint16(5))
	file.WriteString(names)
	entry := func(name string, kind elf.SectionType, flags elf.SectionFlag, at, size uint64) {
		put(&file, uint32(strings.Index(names, name+"\x00")), uint32(kind), uint64(flags), uint64(0),
			at, size, uint32(0), uint32(0), uint64(1), uint64(0))
	}
	entry("", elf.SHT_NULL, 0, 0, 0)
	entry(".text", elf.SHT_NOBITS, elf.SHF_ALLOC|elf.SHF_EXECINSTR, 0, text)
	entry(".text.unlikely", elf.SHT_NOBITS, elf.SHF_ALLOC|elf.SHF_EXECINSTR, 0, unlikely)
	entry(".text.hot", elf.SHT_NOBITS, elf.SHF_ALLOC|elf.SHF_EXECINSTR, 0, hot)
	entry(".init.text", elf.SHT_NOBITS, elf.SHF_ALLOC|elf.SHF_EXECINSTR, 0, 50)
	entry(".names", elf.SHT_STRTAB, 0, header, uint64(len(names)))
	return file.Bytes()
}

func put(buffer *bytes.Buffer, values ...any) {
	for _, value := range values {
		// A buffer takes everything.
		_ = binary.Write(buffer, binary.LittleEndian, value)
	}
}

// fakeImage is a bzImage whose payload is compressed with gzip.
func fakeImage(t *testing.T, release, id string) []byte {
	t.Helper()
	var payload bytes.Buffer
	packer := gzip.NewWriter(&payload)
	if _, err := packer.Write(fakeELF(t, id)); err != nil {
		t.Fatal(err)
	}
	if err := packer.Close(); err != nil {
		t.Fatal(err)
	}
	return imageAround(release, payload.Bytes())
}

func imageAround(release string, payload []byte) []byte {
	const sectors = 2
	image := make([]byte, (sectors+1)*sectorSize+32)
	little := binary.LittleEndian
	image[headerSetupSectors] = sectors
	copy(image[headerMagic:], "HdrS")
	little.PutUint16(image[headerVersion:], 0x020f)
	little.PutUint16(image[headerKernelVersion:], 512)
	copy(image[1024:], release+" (somebody@somewhere) #1\x00")
	little.PutUint32(image[headerCmdlineSize:], 2047)
	little.PutUint32(image[headerPayloadOffset:], 32)
	little.PutUint32(image[headerPayloadLength:], uint32(len(payload)))
	return append(image, payload...)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
