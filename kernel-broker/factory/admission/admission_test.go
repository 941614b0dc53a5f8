// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/tests/support/imagetest"
)

func good(t testing.TB) []byte {
	t.Helper()
	image, err := imagetest.Image(imagetest.Kernel{Release: "6.1.0-x", BuildID: strings.Repeat("ab", 20), Config: wholeConfig()})
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// wholeConfig has all that is needed.
func wholeConfig() string {
	var text strings.Builder
	for _, n := range needed {
		text.WriteString("CONFIG_" + n.symbol + "=y\n")
	}
	return text.String()
}

func write(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCheckHeader(t *testing.T) {
	little := binary.LittleEndian
	if err := CheckHeader(good(t)); err != nil {
		t.Error(err)
	}
	for name, c := range map[string]struct {
		change func([]byte) []byte
		words  string
	}{
		"empty":           {func([]byte) []byte { return nil }, "no bzImage"},
		"cut":             {func(b []byte) []byte { return b[:headerEnd-1] }, "no bzImage"},
		"no boot flag":    {func(b []byte) []byte { b[atBootFlag] = 0; return b }, "no bzImage"},
		"no magic":        {func(b []byte) []byte { b[atMagic] = 'x'; return b }, "no bzImage"},
		"an ELF file":     {func([]byte) []byte { return append([]byte("\x7fELF"), make([]byte, 4096)...) }, "no bzImage"},
		"old protocol":    {func(b []byte) []byte { little.PutUint16(b[atVersion:], 0x20b); return b }, "2.11 is older"},
		"zImage":          {func(b []byte) []byte { b[atLoadFlags] = 0; return b }, "zImage"},
		"not relocatable": {func(b []byte) []byte { b[atRelocatable] = 0; return b }, "relocatable"},
		"32 bits":         {func(b []byte) []byte { b[atXLoadFlags] = 0; return b }, "64-bit"},
		"short command":   {func(b []byte) []byte { little.PutUint32(b[atCmdlineSize:], 255); return b }, "command line of 255"},
		"huge":            {func(b []byte) []byte { little.PutUint32(b[atInitSize:], 0xffffffff); return b }, "to unpack itself"},
	} {
		if err := CheckHeader(c.change(good(t))); !errors.Is(err, kb.ErrInvalid) || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: error %v lacks %q", name, err, c.words)
		}
	}
}

func TestCheck(t *testing.T) {
	path := write(t, "bzImage", good(t))
	f, err := Check(t.Context(), Subject{Image: path})
	if err != nil || f.Release != "6.1.0-x" || f.BuildID != strings.Repeat("ab", 20) || f.Config != "inside" || f.CommandLineBytes != 2047 {
		t.Fatalf("%+v, %v", f, err)
	}
	bare, err := imagetest.Image(imagetest.Kernel{Release: "6.1.0-x", BuildID: strings.Repeat("ab", 20)})
	if err != nil {
		t.Fatal(err)
	}
	zero, err := imagetest.Image(imagetest.Kernel{Release: "6.1.0-x", BuildID: strings.Repeat("00", 20), Config: wholeConfig()})
	if err != nil {
		t.Fatal(err)
	}
	lacking := strings.Replace(wholeConfig(), "CONFIG_KEXEC=y", "# CONFIG_KEXEC is not set", 1) + "CONFIG_CMDLINE_OVERRIDE=y\n"
	unfit, err := imagetest.Image(imagetest.Kernel{Release: "6.1.0-x", BuildID: strings.Repeat("ab", 20), Config: lacking})
	if err != nil {
		t.Fatal(err)
	}
	whole := write(t, "config", []byte(wholeConfig()))
	if f, err := Check(t.Context(), Subject{Image: write(t, "b", bare), Config: whole}); err != nil || f.Config != whole {
		t.Errorf("by a file: %+v, %v", f, err)
	}
	for name, c := range map[string]struct {
		subject Subject
		words   string
	}{
		"no configuration":     {Subject{Image: write(t, "b", bare)}, "(--config-file)"},
		"named":                {Subject{Image: write(t, "b", bare), Name: "theirs"}, `image "theirs": it carries no`},
		"unfit":                {Subject{Image: write(t, "b", unfit)}, "CONFIG_KEXEC is not built in: the node could not leave"},
		"unfit, told together": {Subject{Image: write(t, "b", unfit)}, "CONFIG_CMDLINE_OVERRIDE is set"},
		"lied about":           {Subject{Image: write(t, "b", unfit), Config: whole}, "not the one inside"},
		"no proof":             {Subject{Image: write(t, "b", zero)}, "proves nothing"},
		"payload cut":          {Subject{Image: write(t, "b", good(t)[:len(good(t))-3])}, "truncated"},
		"payload of nothing":   {Subject{Image: write(t, "b", imagetest.Around("6.1", []byte("rubbish")))}, "unknown compression"},
	} {
		if _, err := Check(t.Context(), c.subject); !errors.Is(err, kb.ErrInvalid) || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: error %v lacks %q", name, err, c.words)
		}
	}
}

// A configuration counts as kconfig takes it, and one of another kernel does not.
func TestGivenConfig(t *testing.T) {
	bare, err := imagetest.Image(imagetest.Kernel{Release: "6.1.0-56-amd64", BuildID: strings.Repeat("ab", 20)})
	if err != nil {
		t.Fatal(err)
	}
	image := write(t, "bzImage", bare)
	var packed bytes.Buffer
	packer := gzip.NewWriter(&packed)
	if _, err := packer.Write([]byte(wholeConfig())); err != nil || packer.Close() != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"other line ends":        strings.ReplaceAll(wholeConfig(), "\n", "\r\n"),
		"blanks at the end":      strings.Replace(wholeConfig(), "KEXEC=y", "KEXEC=y ", 1),
		"compressed":             packed.String(),
		"of a point release":     "# Linux/x86 6.1.192 Kernel Configuration\n" + wholeConfig(),
		"of this release":        "CONFIG_BUILD_SALT=\"6.1.0-56-amd64\"\n" + wholeConfig(),
		"left by the other call": strings.Replace(wholeConfig(), "CONFIG_KEXEC=y", "# CONFIG_KEXEC is not set\nCONFIG_KEXEC_FILE=y", 1),
		"with its local name":    "CONFIG_LOCALVERSION=\"-amd64\"\n" + wholeConfig(),
	} {
		if _, err := Check(t.Context(), Subject{Image: image, Config: write(t, "config", []byte(text))}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for words, more := range map[string]string{
		"is of Linux 6.12.3, and the image is release 6.1.0-56-amd64: give": "#\n# Linux/x86 6.12.3 Kernel Configuration\n",
		"is of Linux 6.10, and":                   "# Linux/x86_64 6.10 Kernel Configuration\r\n",
		"is of architecture arm64":                "# Linux/arm64 6.1.192 Kernel Configuration\n",
		"is of release 6.1.0-56-rt-amd64":         "CONFIG_BUILD_SALT=\"6.1.0-56-rt-amd64\"\n",
		"a kernel with CONFIG_LOCALVERSION -mine": "CONFIG_LOCALVERSION=\"-mine\"\n",
		"nor by CONFIG_KEXEC_FILE":                "# CONFIG_KEXEC is not set\n# CONFIG_KEXEC_FILE is not set\n",
	} {
		text := more + wholeConfig()
		if strings.Contains(more, "KEXEC") {
			text = wholeConfig() + more
		}
		if _, err := Check(t.Context(), Subject{Image: image, Config: write(t, "config", []byte(text))}); !errors.Is(err, kb.ErrInvalid) || !strings.Contains(err.Error(), words) {
			t.Errorf("%v lacks %q", err, words)
		}
	}
	if err := ofRelease("# Linux/x86 6.1.190 Kernel Configuration\n", nil, "6.1.192-mine"); !errors.Is(err, kb.ErrInvalid) {
		t.Errorf("another point release: %v", err)
	}
}

func TestEmbeddedConfigDamaged(t *testing.T) {
	var bomb bytes.Buffer
	packer := gzip.NewWriter(&bomb)
	_, _ = packer.Write(make([]byte, 4<<20+2))
	_ = packer.Close()
	for name, kernel := range map[string][]byte{
		"no end": append([]byte("IKCFG_ST"), "abc"...), "no gzip": []byte("IKCFG_STabcIKCFG_ED"),
		"endless": append(append([]byte("IKCFG_ST"), bomb.Bytes()...), "IKCFG_ED"...),
	} {
		if config, err := EmbeddedConfig(kernel); !errors.Is(err, kb.ErrInvalid) {
			t.Errorf("%s: %v, %v", name, config, err)
		}
	}
}

// Whatever a file holds, looking at it ends, and what passes has a magic.
func FuzzHeader(f *testing.F) {
	f.Add(good(f))
	f.Add([]byte("MZ"))
	f.Add(make([]byte, headerEnd))
	f.Fuzz(func(t *testing.T, image []byte) {
		if CheckHeader(image) == nil && (binary.LittleEndian.Uint16(image[atVersion:]) < leastProtocol || string(image[atMagic:atMagic+4]) != "HdrS") {
			t.Errorf("% x", image[atMagic:headerEnd])
		}
	})
}

func FuzzEmbeddedConfig(f *testing.F) {
	f.Add([]byte("IKCFG_STabcIKCFG_ED"))
	var packed bytes.Buffer
	packer := gzip.NewWriter(&packed)
	_, _ = packer.Write([]byte(wholeConfig()))
	_ = packer.Close()
	f.Add(append(append([]byte("xIKCFG_ST"), packed.Bytes()...), "IKCFG_EDx"...))
	f.Fuzz(func(_ *testing.T, kernel []byte) {
		if config, err := EmbeddedConfig(kernel); err == nil && config != nil {
			_ = CheckConfig(config)
		}
	})
}
