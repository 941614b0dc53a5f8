// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/diskfull"
)

// unitLine is what kbuild prints for each file that goes through the compiler.
var unitLine = regexp.MustCompile(`^\s+(CC|AS)\s+\S`)

// tailLines of a failed build's log go into its error.
const tailLines = 12

// reproducible are the settings that keep the day, the machine and the user
// out of the image.
func (b *Builder) reproducible(date time.Time) []string {
	return []string{
		"KBUILD_BUILD_TIMESTAMP=" + date.Format("Mon Jan _2 15:04:05 UTC 2006"),
		"KBUILD_BUILD_USER=kernel-broker",
		"KBUILD_BUILD_HOST=kernel-factory",
		"KBUILD_BUILD_VERSION=1",
		"SOURCE_DATE_EPOCH=" + strconv.FormatInt(date.Unix(), 10),
		"CCACHE_DIR=" + filepath.Join(b.Cache.Dir, "ccache"),
		"CCACHE_MAXSIZE=2G",
	}
}

// Watch is how others see a long build. Both may be nil.
type Watch struct {
	// Log takes all that make says.
	Log io.Writer
	// Units receives how many of all files are compiled.
	Units func(done, total int)
}

// make prepares a call of make in the tree and for the object folder.
func (s site) make(ctx context.Context, environment []string, targets ...string) (*exec.Cmd, error) {
	flags, err := s.flags()
	if err != nil {
		return nil, err
	}
	args := append([]string{"-C", s.tree, "O=" + s.obj, "ARCH=x86_64"}, s.plan.tools(s.variant)...)
	args = append(args, s.inOrder()...)
	if linker := append(s.linkerFlags(), s.linkedBefore()...); len(linker) > 0 {
		args = append(args, "LD="+linkerOf(s.plan.Compiler.Name)+" "+strings.Join(linker, " "))
	}
	folders := s.foldersInDebug()
	if flags = append(flags, folders...); len(flags) > 0 {
		args = append(args, "KCFLAGS="+strings.Join(flags, " "))
	}
	if len(folders) > 0 {
		args = append(args, "KAFLAGS="+strings.Join(folders, " "))
	}
	cmd := command(ctx, environment, "make", append(args, targets...)...)
	cmd.ExtraFiles = []*os.File{s.lock.File()}
	return cmd, nil
}

// foldersInDebug are flags that keep this machine's folders out of debug
// information. None of it gets into the image, but the linker makes the kernel's
// build id of all that it links.
func (s site) foldersInDebug() []string {
	if s.plan.Pahole == "" && !s.plan.lines() {
		return nil
	}
	return []string{"-fdebug-prefix-map=" + s.tree + "=source", "-fdebug-prefix-map=" + s.obj + "=objects"}
}

// inOrder has pahole work with one thread: several of them leave the order of
// types to chance, and with it the image. Kernels have asked for all CPUs since
// 5.17, at first by a script of their own.
func (s site) inOrder() []string {
	const script = "scripts/pahole-flags.sh"
	if s.plan.Pahole == "" || !exists(filepath.Join(s.tree, script)) {
		return nil
	}
	return []string{"PAHOLE_FLAGS=$(patsubst -j,-j1,$(shell PAHOLE=$(PAHOLE) $(srctree)/" + script + "))"}
}

// quietMake runs a target that takes no time, such as a configuration.
func (b *Builder) quietMake(ctx context.Context, at site, targets ...string) error {
	cmd, err := at.make(ctx, nil, append([]string{"-s"}, targets...)...)
	if err != nil {
		return err
	}
	_, err = run(ctx, cmd)
	return err
}

// compile runs the long make. What the compiler says of one object must stand
// together when it is read again, which is so with a profile.
func (b *Builder) compile(ctx context.Context, source Source, at site, watch Watch) error {
	date, err := source.Date()
	if err != nil {
		return err
	}
	if watch.Log == nil {
		watch.Log = io.Discard
	}
	environment := b.reproducible(date)
	if err := b.runMake(ctx, environment, at, watch, nil, "prepare"); err != nil {
		return err
	}
	total, err := b.countUnits(ctx, environment, at)
	if err != nil {
		return err
	}
	done := 0
	unit := func(step int) {
		done += step
		if watch.Units != nil {
			watch.Units(done, max(done, total))
		}
	}
	unit(0)
	targets := []string{"bzImage"}
	if at.variant == Optimised {
		targets = append(targets, "-Otarget")
	}
	return b.runMake(ctx, environment, at, watch, func() { unit(1) }, targets...)
}

// countUnits asks make what it would compile. It says so quickest when it need
// not run anything.
func (b *Builder) countUnits(ctx context.Context, environment []string, at site) (int, error) {
	cmd, err := at.make(ctx, environment, "-n", "bzImage")
	if err != nil {
		return 0, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return 0, fmt.Errorf("make -n: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("make -n: %w", err)
	}
	total, err := countUnitLines(stdout)
	if waited := cmd.Wait(); ctx.Err() != nil {
		return 0, stopped(ctx, waited)
	}
	// A dry run ends with an error where a later rule needs a file that was
	// not made. The count stands, and only a bar depends on it.
	return total, err
}

// dryUnit is a compiler call in the words of a dry run, which shows the command
// that would print the line and not the line.
var dryUnit = regexp.MustCompile(`echo\s+'?\s+(CC|AS)\s+\S`)

func countUnitLines(reader io.Reader) (int, error) {
	lines := bufio.NewScanner(reader)
	lines.Buffer(nil, 1<<20)
	count := 0
	for lines.Scan() {
		if dryUnit.Match(lines.Bytes()) {
			count++
		}
	}
	return count, lines.Err()
}

func (b *Builder) runMake(ctx context.Context, environment []string, at site, watch Watch, unit func(), targets ...string) error {
	cmd, err := at.make(ctx, environment, append([]string{"-j" + strconv.Itoa(b.Jobs)}, targets...)...)
	if err != nil {
		return err
	}
	tail, err := pipeMake(cmd, watch.Log, unit)
	if err != nil {
		return &BuildError{Target: targets[0], Tail: tail, Err: stopped(ctx, err)}
	}
	return nil
}

// pipeMake copies make's words to the log, and returns the last ones.
func pipeMake(cmd *exec.Cmd, log io.Writer, unit func()) (string, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return "", err
	}
	cmd.Stdout, cmd.Stderr = write, write
	if err := cmd.Start(); err != nil {
		return "", errors.Join(err, read.Close(), write.Close())
	}
	_ = write.Close() // make holds its own end
	var tail []string
	lines := bufio.NewScanner(read)
	lines.Buffer(nil, 1<<20)
	var logged, room error
	for lines.Scan() {
		text := lines.Text()
		// Compilers say so long before make's last words, and what is full then
		// has room again when make has removed what was half done.
		if room == nil {
			room = diskfull.In(text)
		}
		if logged == nil {
			_, logged = fmt.Fprintln(log, text)
		}
		if tail = append(tail, text); len(tail) > tailLines {
			tail = tail[1:]
		}
		if unit != nil && unitLine.MatchString(text) {
			unit()
		}
	}
	if err = errors.Join(lines.Err(), read.Close(), cmd.Wait(), logged); err != nil {
		err = errors.Join(err, room)
	}
	return strings.Join(tail, "\n"), err
}
