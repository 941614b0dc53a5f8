// SPDX-License-Identifier: Apache-2.0

//go:build lab

package factory

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// onSmallDisk runs in a mount namespace of its own, where the cache is a disk
// that is too small at first.
const onSmallDisk = `set -eu
links=$(cd "$KB_CACHE" && for link in *; do echo "$link=$(readlink "$link")"; done)
mount -t tmpfs -o size=10m small "$KB_CACHE"
for link in $links; do ln -s "${link#*=}" "$KB_CACHE/${link%%=*}"; done
code=0
"$@" || code=$?
echo "exit code $code" >&2
"$1" kernel build status tiny | sed 's/^/status: /' >&2
mount -o remount,size=1g "$KB_CACHE"
"$@"
"$1" kernel build status tiny
`

func TestFullDisk(t *testing.T) {
	p := anew(t, "disk")
	cmd := p.command(making("tiny", "--until", "traced")...)
	cmd.Args = append([]string{"sh", "-c", onSmallDisk, "sh", cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
	cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
	cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	var out, complaints strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, out.String(), complaints.String())
	}
	full, then, _ := strings.Cut(complaints.String(), "exit code ")
	if !strings.HasPrefix(then, "1\n") {
		t.Fatalf("on a full disk the build ends with %s\n%s", then, full)
	}
	last := full[strings.LastIndex(full, "\nstep ")+1:]
	if !strings.HasPrefix(last, `step "traced": no space left for `+p.dir) {
		t.Errorf("on a full disk the build ends with\n%s", full)
	}
	if !strings.Contains(then, "status: State:") || !strings.Contains(out.String(), "done") || strings.Contains(out.String(), "failed") {
		t.Errorf("the build with room says\n%s\n%s", then, out.String())
	}
}
