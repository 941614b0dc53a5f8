// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	probeMark  = "kblab-probe-ok"
	probeLimit = 3 * time.Second
	kvmDevice  = "/dev/kvm"
)

// accelerator chooses kvm or tcg and returns the reason. The device alone is no proof: in some clouds it exists and
// guests hang. So a machine with the lab's own kernel and image must reach its userland in time.
func accelerator(ctx context.Context, cache string, k Kernel, image string) (name, why string, err error) {
	f, err := os.OpenFile(kvmDevice, os.O_RDWR, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "tcg", "no " + kvmDevice, nil
	case err != nil:
		return "tcg", err.Error(), nil
	}
	f.Close()
	memo := filepath.Join(cache, "probe.json")
	if p, ok := remembered(memo); ok {
		return p.Accel, p.Why + ", found earlier", nil
	}
	p := probe{Accel: "kvm", Why: "a probe boot reached userland"}
	if err := probeBoot(ctx, k, image); err != nil {
		if ctx.Err() != nil {
			return "", "", ctx.Err()
		}
		p = probe{Accel: "tcg", Why: "kvm probe boot: " + err.Error()}
	}
	p.Boot = bootID()
	return p.Accel, p.Why, p.remember(memo)
}

// probe is remembered until the host boots again, since a failed one costs
// seconds.
type probe struct {
	Boot  string `json:"boot"`
	Accel string `json:"accel"`
	Why   string `json:"why"`
}

func remembered(path string) (probe, bool) {
	var p probe
	text, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(text, &p) != nil {
		return p, false
	}
	return p, p.Boot == bootID() && p.Boot != ""
}

func (p probe) remember(path string) error {
	text, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("probe result: %w", err)
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return fmt.Errorf("probe result: %w", err)
	}
	return nil
}

func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// probeBoot boots the node's kernel under KVM up to a program that prints a
// mark and powers off.
func probeBoot(ctx context.Context, k Kernel, image string) error {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	args := append(machineArgs("kvm", 256, 1),
		"-kernel", k.Image,
		"-append", "root=/dev/vda ro console=ttyS0 panic=-1 init=/usr/libexec/kblab/probe",
		"-drive", "if=virtio,format=raw,readonly=on,file.locking=off,file="+image,
		"-no-reboot", "-serial", "stdio",
	)
	if k.Initrd != "" {
		args = append(args, "-initrd", k.Initrd)
	}
	cmd := exec.CommandContext(ctx, qemuProgram, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if strings.Contains(out.String(), probeMark) {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("no userland within %v", probeLimit)
	}
	text := strings.TrimSpace(errs.String())
	if len(text) > 200 {
		text = text[:200]
	}
	return fmt.Errorf("%v: %s", err, text)
}
