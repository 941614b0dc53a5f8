package factory

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
	plan Plan
	tree string
	obj  string
	// lock of the object folder. Make and all it starts inherit it: when this
	// process is killed, the folder stays locked until the last of them ended.
	lock *filelock.Lock
}

// withObjects runs a build in the object folder of its source and compiler.
//
// All kernels of one source share that folder, one after the other: kbuild
// knows for each object which options it depends on, so that a kernel with a
// few other options compiles a few files. The path must stay the same, since
// the tree's own tools are built again when it changes, and all objects with
// them.
//
// A process that is killed outright can leave half an object that looks
// finished. The folder therefore counts as usable only when the last build in
// it came to an end, good or bad, and is begun anew otherwise.
func (b *Builder) withObjects(ctx context.Context, plan Plan, tree string, build func(at site) error) error {
	obj := filepath.Join(b.Cache.Dir, "objects", plan.objectsKey())
	lock, err := filelock.Acquire(ctx, obj+".lock", b.Progress.Waiting("building another kernel of this source"))
	if err != nil {
		return fmt.Errorf("object folder: %w", err)
	}
	defer lock.Release()
	inUse := obj + ".in-use"
	if exists(inUse) {
		if err := os.RemoveAll(obj); err != nil {
			return fmt.Errorf("object folder: left-over of a killed build: %w", err)
		}
	}
	if err := os.MkdirAll(obj, 0o755); err != nil {
		return fmt.Errorf("object folder: %w", err)
	}
	if err := os.WriteFile(inUse, nil, 0o644); err != nil {
		return fmt.Errorf("object folder: %w", err)
	}
	err = build(site{plan: plan, tree: tree, obj: obj, lock: lock})
	if ctx.Err() != nil {
		return err
	}
	return errors.Join(err, os.Remove(inUse))
}

// objectsKey names what objects can only be shared with the same of.
func (p Plan) objectsKey() string {
	sum := sha256.Sum256([]byte(p.Compiler.Version + "\n" + p.Compiler.Linker))
	return p.Source.Name + "_" + p.Source.Version + "-" + hex.EncodeToString(sum[:6])
}
