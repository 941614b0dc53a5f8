package slim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// WriteLinkMap links a kernel once more from its object folder, to learn where
// the linker put each object, and writes the map to a file. It needs no other
// configuration and leaves the folder as it is. The result must have the code
// of the kernel's vmlinux, else the map would be one of another kernel. The
// map's folder takes some files of the kernel's size for the time being.
func WriteLinkMap(ctx context.Context, objects, table string) error {
	if err := relink(ctx, objects, table); err != nil {
		return fmt.Errorf("link map: %w", err)
	}
	return nil
}

func relink(ctx context.Context, objects, table string) (err error) {
	kept, err := os.ReadFile(filepath.Join(objects, ".vmlinux.cmd"))
	if err != nil {
		return fmt.Errorf("the object folder has no linked kernel: %w", err)
	}
	arguments, err := linkFlags(string(kept))
	if err != nil {
		return err
	}
	last, err := lastKallsyms(objects)
	if err != nil {
		return err
	}
	if table, err = filepath.Abs(table); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp(filepath.Dir(table), "relink")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	image, made := filepath.Join(scratch, "image"), filepath.Join(scratch, "map")
	arguments = append(arguments, "--script=arch/x86/kernel/vmlinux.lds", "-Map="+made, "-o", image,
		"--whole-archive", "vmlinux.a")
	arguments = append(arguments, present(objects, ".vmlinux.export.o", "init/version-timestamp.o")...)
	arguments = append(arguments, "--no-whole-archive", "--start-group")
	arguments = append(arguments, present(objects, "lib/lib.a", "arch/x86/lib/lib.a")...)
	arguments = append(arguments, "--end-group")
	arguments = append(arguments, last...)
	if err := command(ctx, objects, "ld", arguments...); err != nil {
		return err
	}
	if err := sameCode(ctx, objects, image, scratch); err != nil {
		return err
	}
	return os.Rename(made, table)
}

// linkFlags takes the linker's flags out of the command that kbuild kept:
// "cmd_vmlinux := sh .../link-vmlinux.sh "ld" "flags" "more flags"; true".
func linkFlags(kept string) ([]string, error) {
	first, _, _ := strings.Cut(kept, "\n")
	_, call, found := strings.Cut(first, "link-vmlinux.sh")
	parts := strings.Split(call, `"`)
	if !found || len(parts) < 7 {
		return nil, fmt.Errorf("%q is not how this kernel version links", first)
	}
	return strings.Fields(parts[3] + " " + parts[5]), nil
}

// present keeps the files that this configuration made.
func present(objects string, names ...string) []string {
	return slices.DeleteFunc(names, func(name string) bool {
		_, err := os.Stat(filepath.Join(objects, name))
		return err != nil
	})
}

// lastKallsyms is the object with the table of symbols of the final link.
func lastKallsyms(objects string) ([]string, error) {
	found, err := filepath.Glob(filepath.Join(objects, ".tmp_vmlinux.kallsyms*.o"))
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return []string{filepath.Base(found[len(found)-1])}, nil
}

func sameCode(ctx context.Context, objects, image, scratch string) error {
	var texts [2][]byte
	for i, file := range []string{filepath.Join(objects, "vmlinux"), image} {
		out := filepath.Join(scratch, fmt.Sprintf("text%d", i))
		if err := command(ctx, objects, "objcopy", "-O", "binary", "--only-section=.text", file, out); err != nil {
			return err
		}
		var err error
		if texts[i], err = os.ReadFile(out); err != nil {
			return err
		}
	}
	if !bytes.Equal(texts[0], texts[1]) {
		return fmt.Errorf("linked once more, the code differs from that of %s", filepath.Join(objects, "vmlinux"))
	}
	return nil
}

func command(ctx context.Context, dir, name string, arguments ...string) error {
	cmd := exec.CommandContext(ctx, name, arguments...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(out))
	}
	return nil
}
