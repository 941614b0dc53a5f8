// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/filelock"
)

// site is where make works.
type site struct {
	plan    Plan
	variant Variant
	tree    string
	obj     string
	// sampled is the sample profile that goes into each object, "" for none.
	sampled string
	// lock of the object folder. Make and all it starts inherit it: when this
	// process is killed, the folder stays locked until the last of them ended.
	lock *filelock.Lock
	// builder is who builds, for the manifest.
	builder string
}

// withObjects runs a build in the object folder of its source, compiler and
// flavour.
//
// All kernels of one flavour share that folder, one after the other: kbuild
// knows for each object which options it depends on, so that a kernel with a
// few other options compiles a few files, and a kernel with another profile
// those whose profile differs. The path must stay the same, since
// the tree's own tools are built again when it changes, and all objects with
// them.
//
// A process that is killed outright can leave half an object that looks
// finished. The folder is therefore marked while it is in use, and cleaned when
// it is found with the mark of a build that is gone.
//
// The folder is the direct child of one that shows the source tree by links: there
// kbuild calls the source "..". GCC tells functions apart by the names of their
// files, so counters fit wherever the cache is (ADR 0035).
func (b *Builder) withObjects(ctx context.Context, plan Plan, variant Variant, tree string, build func(at site) error) error {
	obj, err := b.objectFolder(plan, variant)
	if err != nil {
		return err
	}
	shown := filepath.Dir(obj)
	lock, err := filelock.Acquire(ctx, shown+".lock", b.Progress.Waiting("building another kernel of this source"))
	if err != nil {
		return fmt.Errorf("object folder: %w", err)
	}
	defer lock.Release()
	if err := showTree(tree, shown); err != nil {
		return fmt.Errorf("object folder: %w", err)
	}
	inUse := obj + ".in-use"
	if err := recoverObjects(obj, inUse); err != nil {
		return fmt.Errorf("object folder: left-over of a killed build: %w", err)
	}
	if err := os.MkdirAll(obj, 0o755); err != nil {
		return fmt.Errorf("object folder: %w", err)
	}
	if err := os.WriteFile(inUse, []byte(bootID()), 0o644); err != nil {
		return fmt.Errorf("object folder: %w", err)
	}
	err = build(site{plan: plan, variant: variant, tree: shown, obj: obj, lock: lock, builder: b.Name})
	if ctx.Err() != nil {
		return err
	}
	return errors.Join(err, os.Remove(inUse))
}

// objectFolder is the path as the compiler sees it, without links, since it is
// part of what a counting kernel says of itself.
func (b *Builder) objectFolder(plan Plan, variant Variant) (string, error) {
	flavour, err := plan.flavour(variant)
	if err != nil {
		return "", err
	}
	folder := filepath.Join(b.Cache.Dir, "compiled")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", fmt.Errorf("object folder: %w", err)
	}
	if folder, err = filepath.Abs(folder); err == nil {
		folder, err = filepath.EvalSymlinks(folder)
	}
	if err != nil {
		return "", fmt.Errorf("object folder: %w", err)
	}
	return filepath.Join(folder, plan.objectsKey()+flavour, "objects"), nil
}

// showTree links to everything in the top folder of a source tree. A link that
// leads elsewhere is of a tree that moved.
func showTree(tree, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(tree)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		target, link := filepath.Join(tree, entry.Name()), filepath.Join(dir, entry.Name())
		if now, err := os.Readlink(link); err == nil && now == target {
			continue
		}
		if err := errors.Join(removeIfThere(link), os.Symlink(target, link)); err != nil {
			return err
		}
	}
	return nil
}

// objectsKey names what objects can only be shared with the same of.
func (p Plan) objectsKey() string {
	sum := sha256.Sum256([]byte(p.Compiler.Version + "\n" + p.Compiler.Linker))
	return p.Source.key() + "-" + hex.EncodeToString(sum[:6])
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
