// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	api "github.com/kernelbroker/kernelbroker/kernel-broker/api/v1"
)

func (a *app) artifactCommand() *cobra.Command {
	list := &cobra.Command{Use: "list", Short: "List stored files and what uses them", Args: cobra.NoArgs, RunE: a.run(a.artifactList)}
	var dryRun bool
	gc := &cobra.Command{
		Use: "gc", Short: "Remove unused files",
		Long: `Removes files that no version of a profile, no job, no node and no running upload
needs, and that were not requested within the broker's grace period. Images of
versions that were retired long ago count as unused. The broker does the same by
itself when an upload would not fit.`,
		Example: "  kernelctl artifact gc --dry-run",
		Args:    cobra.NoArgs,
		RunE:    a.run(func(ctx context.Context, _ []string) error { return a.artifactCollect(ctx, dryRun) }),
	}
	gc.Flags().BoolVar(&dryRun, "dry-run", false, "only show the changes")
	return noun("artifact", "Files in the broker's store", list, gc)
}

func (a *app) artifactList(ctx context.Context, _ []string) error {
	response, err := call(ctx, a, api.NewCatalogServiceClient, api.CatalogServiceClient.ListArtifacts, &api.ListArtifactsRequest{})
	if err != nil {
		return err
	}
	return a.show(response, func(p *page) {
		artifactRows(p, response.GetArtifacts())
		limit := "no limit"
		if response.GetLimitBytes() > 0 {
			limit = "of " + bytesOf(response.GetLimitBytes())
		}
		p.line("%s, %s %s", count(len(response.GetArtifacts()), "file"), bytesOf(response.GetUsedBytes()), limit)
	})
}

func artifactRows(p *page, files []*api.Artifact) {
	if len(files) == 0 {
		return
	}
	p.row("DIGEST", "SIZE", "USED", "NEEDED BY")
	for _, f := range files {
		by := strings.Join(f.GetNeededBy(), ", ")
		if f.GetPartial() && by == "" {
			by = "nothing (an interrupted upload)"
		}
		by = cmp.Or(by, "nothing")
		digest := strings.TrimPrefix(f.GetDigest(), "sha256:")
		p.row(short(digest), bytesOf(f.GetSize()), clock(f.GetUsed().AsTime()), by)
	}
}

func (a *app) artifactCollect(ctx context.Context, dryRun bool) error {
	response, err := call(ctx, a, api.NewCatalogServiceClient, api.CatalogServiceClient.CollectArtifacts, &api.CollectArtifactsRequest{DryRun: dryRun})
	if err != nil {
		return err
	}
	var freed uint64
	for _, f := range response.GetRemoved() {
		freed += f.GetSize()
	}
	word := "removed"
	if dryRun {
		word = "would remove"
	}
	a.say("%s %s, %s", word, count(len(response.GetRemoved()), "file"), bytesOf(freed))
	if len(response.GetRemoved()) == 0 && a.output == outputTable {
		return nil
	}
	return a.show(response, func(p *page) { artifactRows(p, response.GetRemoved()) })
}

// arrived returns how much of a file the broker has.
func (a *app) arrived(ctx context.Context, digest string) (stored bool, size uint64, err error) {
	response, err := call(ctx, a, api.NewCatalogServiceClient, api.CatalogServiceClient.GetArtifact, &api.GetArtifactRequest{Digest: digest})
	if err != nil {
		return false, 0, fmt.Errorf("artifact %s: %w", digest, err)
	}
	return response.GetStored(), response.GetSize(), nil
}
