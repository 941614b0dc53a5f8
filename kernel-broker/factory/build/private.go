// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

//go:embed private.sh
var privateScript string

// libModules is where makefiles look for kernels.
const libModules = "/lib/modules/"

// privately is the command line that runs a package's command where the new kernel is /lib/modules/RELEASE, in which makefiles look for what
// dkms has there. Where that cannot be, it runs the command as it is, and the hindrance says why.
func (p packageBuild) privately(ctx context.Context, text string) (argv []string, hindrance error) {
	scratch := filepath.Join(p.tree, "lib")
	namespaces := [][]string{{"unshare", "--user", "--map-root-user", "--mount"}}
	if os.Geteuid() == 0 {
		namespaces = slices.Insert(namespaces, 0, []string{"unshare", "--mount"}) // a container's root may have no right to it
	}
	for _, namespace := range namespaces {
		inside := func(text string) []string {
			return append(slices.Clone(namespace), "bash", "-c", privateScript, "private.sh", p.release, p.at.obj, p.at.tree, scratch, text)
		}
		try := inside("true")
		said, err := command(ctx, nil, try[0], try[1:]...).CombinedOutput()
		if err == nil {
			return inside(text), nil
		}
		hindrance = fmt.Errorf("%w: %s", err, bytes.TrimSpace(said))
	}
	return []string{"bash", "-c", text}, hindrance
}
