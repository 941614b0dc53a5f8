// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The lab's catalog is what "up" registers with the broker: the repository's profiles, except that "stock" names the
// kernel that the lab's firmware boots, with its initrd. It is in the lab's folder, so that the front-end sees it.

// stockProfile is the reserved name of the profile that nodes return to.
const stockProfile = "stock"

// profileKernels reads the names of a profile's kernels. The product validates the rest.
type profileKernels struct {
	Name     string `yaml:"name"`
	Versions []struct {
		Kernel string `yaml:"kernel"`
	} `yaml:"versions"`
}

// CatalogDir is the folder with the lab's profiles/ and kernels/, as the host
// sees it; on the front-end it is /run/lab/catalog.
func (l *Lab) CatalogDir() string { return l.layout.path("catalog") }

// writeCatalog fills it.
func (l *Lab) writeCatalog() error {
	if err := l.writeStock(); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(l.state.Options.Repo, "catalog/profiles/*.yaml"))
	if err != nil {
		return fmt.Errorf("catalog: %w", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("catalog: %w", err)
		}
		var p profileKernels
		if err := yaml.Unmarshal(text, &p); err != nil {
			return fmt.Errorf("catalog: %q: %w", file, err)
		}
		if p.Name == stockProfile {
			continue
		}
		if err := l.addProfile(filepath.Base(file), text, p); err != nil {
			return err
		}
	}
	return nil
}

// applyCatalog registers the lab's catalog with the broker.
func (l *Lab) applyCatalog(ctx context.Context) error {
	if l.state.Options.WithoutCatalog {
		return nil
	}
	inside := insideDir + "/catalog"
	r, err := l.Exec(ctx, l.root(), "kernelctl", "profile", "apply", inside, "--kernels", inside+"/kernels", "--built")
	if err == nil && r.Exit != 0 {
		err = fmt.Errorf("kernelctl profile apply: exit %d: %s", r.Exit, strings.TrimSpace(r.Stderr))
	}
	if err != nil {
		return fmt.Errorf("catalog: %w", err)
	}
	for line := range strings.Lines(r.Stderr + r.Stdout) {
		l.progress("%s", strings.TrimSpace(line))
	}
	return nil
}

// addProfile adds a profile with those of its kernels that are built.
func (l *Lab) addProfile(name string, text []byte, p profileKernels) error {
	for _, v := range p.Versions {
		if err := l.addKernel(v.Kernel); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return write(l.layout.path("catalog/profiles", name), string(text), 0o644)
}

func (l *Lab) addKernel(name string) error {
	if name == l.state.Kernel.Name {
		return nil // there already, perhaps with an initrd
	}
	from, to := filepath.Join(l.state.Options.Kernels, name), l.layout.path("catalog/kernels", name)
	// The manifest last: without its image a kernel is not built.
	for _, file := range []string{"bzImage", "kernel.json"} {
		if err := copyFile(filepath.Join(from, file), filepath.Join(to, file), 0o644); err != nil {
			return err
		}
	}
	// What was measured of it, and modules of others, where there are any.
	for _, file := range []string{"report.json", "modules.tar.zst"} {
		err := copyFile(filepath.Join(from, file), filepath.Join(to, file), 0o644)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// writeStock makes the profile "stock" and its kernel's folder.
func (l *Lab) writeStock() error {
	k := l.state.Kernel
	dir := l.layout.path("catalog/kernels", k.Name)
	if err := copyFile(k.Image, filepath.Join(dir, "bzImage"), 0o644); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(filepath.Dir(k.Image), "kernel.json"))
	if err != nil {
		return fmt.Errorf("kernel %q: %w (make kernels)", k.Name, err)
	}
	manifest := map[string]any{}
	if err := json.Unmarshal(text, &manifest); err != nil {
		return fmt.Errorf("kernel %q: manifest: %w", k.Name, err)
	}
	if k.Initrd != "" {
		initrd, err := os.ReadFile(k.Initrd)
		if err != nil {
			return fmt.Errorf("kernel %q: %w", k.Name, err)
		}
		sum := sha256.Sum256(initrd)
		manifest["initrd"] = map[string]any{
			"name": "initrd.img", "digest": "sha256:" + hex.EncodeToString(sum[:]), "size": len(initrd),
		}
		if err := write(filepath.Join(dir, "initrd.img"), string(initrd), 0o644); err != nil {
			return err
		}
	}
	if text, err = json.MarshalIndent(manifest, "", "  "); err != nil {
		return fmt.Errorf("kernel %q: manifest: %w", k.Name, err)
	}
	if err := write(filepath.Join(dir, "kernel.json"), string(text), 0o644); err != nil {
		return err
	}
	return l.writeStockProfile()
}

// writeStockProfile writes the repository's stock profile with the firmware's kernel.
func (l *Lab) writeStockProfile() error {
	source := filepath.Join(l.state.Options.Repo, "catalog/profiles", stockProfile+".yaml")
	text, err := os.ReadFile(source)
	if err != nil {
		return fmt.Errorf("catalog: %w", err)
	}
	changed := stockText(string(text), l.state.Kernel.Name)
	return write(l.layout.path("catalog/profiles", stockProfile+".yaml"), changed, 0o644)
}

// stockText replaces the kernel's name, which stands alone on its line.
func stockText(text, kernel string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if before, _, ok := strings.Cut(line, "kernel: "); ok && strings.TrimSpace(before) == "" {
			lines[i] = before + "kernel: " + kernel
		}
	}
	return strings.Join(lines, "\n")
}
