// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// imageFormat is part of the digest: raise it when the build of the image changes.
const imageFormat = "kblab-image-1"

// buildImage returns the disk image for the list, from the cache where an
// image of the same content was built before.
func buildImage(ctx context.Context, cache string, list []entry) (path string, cached bool, err error) {
	sum, size, err := digest(list)
	if err != nil {
		return "", false, err
	}
	path = filepath.Join(cache, "images", sum+".ext4")
	if _, err := os.Stat(path); err == nil {
		// Cleaners go by this time.
		now := time.Now()
		return path, true, os.Chtimes(path, now, now)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", false, fmt.Errorf("cache: %w", err)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(path), ".build-")
	if err != nil {
		return "", false, fmt.Errorf("cache: %w", err)
	}
	defer os.RemoveAll(tmp)
	tree := filepath.Join(tmp, "root")
	if err := stage(tree, list); err != nil {
		return "", false, err
	}
	made := filepath.Join(tmp, "image")
	if err := makeFileSystem(ctx, tree, made, size, len(list)); err != nil {
		return "", false, err
	}
	if err := os.Rename(made, path); err != nil {
		return "", false, fmt.Errorf("cache: %w", err)
	}
	pruneImages(filepath.Dir(path))
	return path, false, nil
}

// keepImages bounds the cache: a change of the product makes a new image.
const keepImages = 6

// pruneImages removes the least recently used images. A lab has its own copy (or link), so none in use disappears. On
// errors the cache is merely larger.
func pruneImages(dir string) {
	list, err := filepath.Glob(filepath.Join(dir, "*.ext4"))
	if err != nil || len(list) <= keepImages {
		return
	}
	used := map[string]time.Time{}
	for _, p := range list {
		if st, err := os.Stat(p); err == nil {
			used[p] = st.ModTime()
		}
	}
	slices.SortFunc(list, func(a, b string) int { return used[b].Compare(used[a]) })
	for _, p := range list[keepImages:] {
		_ = os.Remove(p)
	}
}

// digest covers each entry's path, kind, mode and content. It also adds up the
// content's size.
func digest(list []entry) (string, int64, error) {
	h := sha256.New()
	fmt.Fprintln(h, imageFormat)
	var size int64
	for _, e := range list {
		fmt.Fprintf(h, "%q %o %q\n", e.target, e.mode, e.link)
		n, err := e.contentTo(h)
		if err != nil {
			return "", 0, err
		}
		size += n
	}
	return hex.EncodeToString(h.Sum(nil))[:32], size, nil
}

// contentTo writes the length and the content of an entry to the hash.
func (e entry) contentTo(h hash.Hash) (int64, error) {
	if e.source == "" {
		n, err := h.Write(e.text)
		return int64(n), err
	}
	f, err := os.Open(e.source)
	if err != nil {
		return 0, fmt.Errorf("image file: %w", err)
	}
	defer f.Close()
	n, err := io.Copy(h, f)
	if err != nil {
		return 0, fmt.Errorf("image file %q: %w", e.source, err)
	}
	fmt.Fprintf(h, "\n%d\n", n)
	return n, nil
}

// stage lays the entries out in a folder.
func stage(tree string, list []entry) error {
	for _, e := range list {
		to := filepath.Join(tree, e.target)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return fmt.Errorf("image tree: %w", err)
		}
		var err error
		switch {
		case e.mode.IsDir():
			err = os.MkdirAll(to, 0o755)
		case e.link != "":
			err = os.Symlink(e.link, to)
		case e.source != "":
			err = copyFile(e.source, to, 0o755)
		default:
			err = os.WriteFile(to, e.text, 0o755)
		}
		if err == nil && e.link == "" {
			err = os.Chmod(to, e.mode.Perm())
		}
		if err != nil {
			return fmt.Errorf("image tree: %w", err)
		}
	}
	return nil
}

// makeFileSystem needs no root: mke2fs copies the tree itself, and in a user namespace the caller's files belong to
// root.
func makeFileSystem(ctx context.Context, tree, image string, size int64, files int) error {
	mib := (size+int64(files)*4096)>>20 + 16
	args := []string{
		"/usr/sbin/mke2fs", "-q", "-F", "-t", "ext4", "-d", tree, "-b", "4096", "-m", "0",
		"-N", fmt.Sprint(files*2 + 256), "-O", "^has_journal,^metadata_csum,^resize_inode,^huge_file,^orphan_file",
		"-E", "root_owner=0:0,nodiscard", image, fmt.Sprintf("%dM", mib),
	}
	if os.Geteuid() != 0 {
		args = append([]string{"unshare", "--user", "--map-root-user"}, args...)
	}
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("disk image: %w: %s", err, out)
	}
	return nil
}
