package slim

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// LinkMap links a kernel once more from its object folder, to learn where the
// linker put each object, and reads the map. It needs no other configuration
// and leaves the folder as it is. The result must have the code of the
// kernel's vmlinux, else the map would be one of another kernel.
func LinkMap(ctx context.Context, objects, scratch string) ([]Piece, error) {
	command, err := os.ReadFile(filepath.Join(objects, ".vmlinux.cmd"))
	if err != nil {
		return nil, fmt.Errorf("link map: the object folder has no linked kernel: %w", err)
	}
	flags, err := linkFlags(string(command))
	if err != nil {
		return nil, fmt.Errorf("link map: %w", err)
	}
	last, err := lastKallsyms(objects)
	if err != nil {
		return nil, fmt.Errorf("link map: %w", err)
	}
	image := filepath.Join(scratch, "relinked")
	table := image + ".map"
	arguments := append(flags, "--script=arch/x86/kernel/vmlinux.lds", "-Map="+table, "-o", image,
		"--whole-archive", "vmlinux.a", "init/version-timestamp.o", "--no-whole-archive")
	if last != "" {
		arguments = append(arguments, last)
	}
	if _, err := output(ctx, objects, "ld", arguments...); err != nil {
		return nil, fmt.Errorf("link map: %w", err)
	}
	if err := sameCode(ctx, objects, image, scratch); err != nil {
		return nil, fmt.Errorf("link map: %w", err)
	}
	file, err := os.Open(table)
	if err != nil {
		return nil, fmt.Errorf("link map: %w", err)
	}
	defer func() { _ = file.Close() }() // only read from
	return ReadLinkMap(file)
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

// lastKallsyms is the object with the table of symbols of the final link.
func lastKallsyms(objects string) (string, error) {
	found, err := filepath.Glob(filepath.Join(objects, ".tmp_vmlinux.kallsyms*.o"))
	if err != nil || len(found) == 0 {
		return "", err
	}
	return filepath.Base(found[len(found)-1]), nil
}

func sameCode(ctx context.Context, objects, image, scratch string) error {
	var texts [2][]byte
	for i, file := range []string{filepath.Join(objects, "vmlinux"), image} {
		out := filepath.Join(scratch, fmt.Sprintf("text%d", i))
		if _, err := output(ctx, objects, "objcopy", "-O", "binary", "--only-section=.text", file, out); err != nil {
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

func output(ctx context.Context, dir, name string, arguments ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, arguments...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(stderr.String()))
	}
	return out, nil
}
