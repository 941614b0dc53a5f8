// SPDX-License-Identifier: Apache-2.0

//go:build lab

package factory

import (
	"slices"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/factory/culprit"
)

// cursed is tiny, without slimming and with the patch below.
const cursed = `name: cursed
description: A kernel that does not boot with the profile of one object
source:
  debian: linux-source-6.1
base: tinyconfig
fragments:
  - tiny
  - scripts
localversion: -cursed
compiler: gcc-12
optimisation: pgo
workload: writes
patches:
  - file: cursed.patch
    upstream: never sent
`

// The compiler parts what ran often from what did not, where it has the object's counters: vfs_write is then far from a function
// beside it in the source. That panics.
const cursedPatch = `--- a/fs/read_write.c
+++ b/fs/read_write.c
@@ -1719,3 +1719,20 @@
 
 	return 0;
 }
+
+/* Never called, and not to be removed. */
+static noinline int kb_never(int n)
+{
+	return n * 3;
+}
+
+static int __init kb_cursed(void)
+{
+	int (*volatile never)(int) = kb_never;
+	long away = (long)never - (long)vfs_write;
+
+	if (away < -65536 || away > 65536)
+		panic("kb: this object has a profile");
+	return 0;
+}
+late_initcall(kb_cursed);
`

// A kernel that boots without the profile of one object only is found out by halves, and its recipe's lines make it boot.
func TestBisect(t *testing.T) {
	p := anew(t, "bisect")
	files := map[string]string{"kernels/cursed.yaml": cursed, "patches/cursed.patch": cursedPatch}
	s := p.kernelctl("kernel", "build", "cursed", "--catalog", catalogWith(t, files), "--publish", "never")
	if !strings.Contains(s.out+s.err, "kb: this object has a profile") {
		t.Fatalf("exit %d, and the kernel boots:\n%s%s", s.exit, s.out, s.err)
	}
	var outcome culprit.Outcome
	decode(t, p.must("kernel", "bisect", "cursed", "--catalog", catalogWith(t, files), "--output", "json").out, &outcome)
	t.Logf("%+v", outcome)
	if !slices.Equal(outcome.Culprits, []string{"fs/read_write.o"}) || !strings.Contains(outcome.Fault, "kb: this object has a profile") {
		t.Errorf("found %+v", outcome)
	}
	files["kernels/cursed.yaml"] += "exclude:\n  - object: fs/read_write.o\n    reason: the kernel does not boot with its profile\n"
	if s := p.kernelctl("kernel", "bisect", "cursed", "--catalog", catalogWith(t, files)); s.exit != 0 || !strings.Contains(s.out, "boots with all its profiles") {
		t.Errorf("with the lines in the recipe: exit %d\n%s%s", s.exit, s.out, s.err)
	}
}
