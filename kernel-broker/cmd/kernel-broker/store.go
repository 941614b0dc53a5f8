// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdstore"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/site"
)

// storeCommand has what an administrator does with the records while the broker does not, or not yet, act on them.
func storeCommand(read func() (config, error)) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Check, move, back up and restore the broker's records",
		Long: `The broker's records are in etcd: one of its own in data_dir, or the cluster that
etcd.endpoints names. Kernels, results of runs and the audit log are files in data_dir,
which these commands leave alone. The authority's keys are records that the key in
store_key_file seals.

Every command may be killed at any moment and run again. Run them as the owner of
data_dir, which is the broker's user.`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(checkStoreCommand(read), backupCommand(read), restoreCommand(read), moveCommand(read), adoptCommand(read), keyCommand(read), dropCommand(read))
	return cmd
}

// usage has wrong arguments be wrong usage.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError{err}
		}
		return nil
	}
}

// withConfig reads the configuration first.
func withConfig(read func() (config, error), do func(context.Context, transfer, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := read()
		if err != nil {
			return err
		}
		err = do(cmd.Context(), transfer{c: c, patience: outlives, out: cmd.OutOrStdout(), err: cmd.ErrOrStderr(), progress: progress(cmd.ErrOrStderr(), time.Second),
			log: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))}, args)
		if err != nil && cmd.Context().Err() != nil {
			err = fmt.Errorf("broken off, run it again: %w", err)
		}
		return err
	}
}

func checkStoreCommand(read func() (config, error)) *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Say whether the broker can work with its etcd",
		Long: `Try what the broker does at its start with the etcd that etcd.endpoints names: each
member, the user's rights below etcd.prefix, what fits into a request, and whose
records are there. It changes nothing, and may be run while a broker acts.`,
		Example: "  kernel-broker store check",
		Args:    usage(cobra.NoArgs),
		RunE:    withConfig(read, func(ctx context.Context, t transfer, _ []string) error { return t.check(ctx) }),
	}
}

func backupCommand(read func() (config, error)) *cobra.Command {
	return &cobra.Command{
		Use:   "backup FILE",
		Short: "Write all records to a file",
		Long: `Write all records, as of one moment, to a new file that only its owner can read. The
broker may run meanwhile. FILE has a checksum, and zcat shows it.

Copy store_key_file, too, without which the backup has no authority, and data_dir for
the kernels' images, results of runs and the audit log.`,
		Example: "  runuser -u kernel-broker -- kernel-broker store backup /var/backups/kernel-broker/hpc.backup",
		Args:    usage(cobra.ExactArgs(1)),
		RunE:    withConfig(read, func(ctx context.Context, t transfer, args []string) error { return t.backup(ctx, args[0]) }),
	}
}

func restoreCommand(read func() (config, error)) *cobra.Command {
	return &cobra.Command{
		Use:   "restore FILE",
		Short: "Fill an empty store with the records of a backup",
		Long: `Check a backup and write its records to the store that broker.yaml names: the etcd of
etcd.endpoints, or else the embedded one. The store has to be empty, and no broker may
act. Until all records are there and compared, no broker starts on them; run a restore
that was broken off again.

Records that are newer than the backup are lost: kernels that were registered,
revocations, records of jobs.`,
		Example: `  systemctl stop kernel-broker
  runuser -u kernel-broker -- kernel-broker store restore /var/backups/kernel-broker/hpc.backup
  systemctl start kernel-broker`,
		Args: usage(cobra.ExactArgs(1)),
		RunE: withConfig(read, func(ctx context.Context, t transfer, args []string) error { return t.restore(ctx, args[0]) }),
	}
}

func moveCommand(read func() (config, error)) *cobra.Command {
	return &cobra.Command{
		Use:   "move",
		Short: "Take the records from the embedded store to an etcd cluster",
		Long: `Copy all records from the embedded store in data_dir to the etcd that etcd.endpoints
names, compare them, and note in data_dir that they are there. The broker must be
stopped. The embedded store stays as it is; remove its folder when the broker has
worked without it for a while. Run a move that was broken off again: until it is done,
no broker starts on the new store.`,
		Example: `  kernel-broker store check                      # with etcd.endpoints in broker.yaml
  systemctl stop kernel-broker
  runuser -u kernel-broker -- kernel-broker store move
  systemctl start kernel-broker`,
		Args: usage(cobra.NoArgs),
		RunE: withConfig(read, func(ctx context.Context, t transfer, _ []string) error { return t.move(ctx) }),
	}
}

func adoptCommand(read func() (config, error)) *cobra.Command {
	return &cobra.Command{
		Use:   "adopt",
		Short: "Say that the records of the store are this site's",
		Long: `The broker refuses records of another site than its data_dir is of. After a data_dir
was lost, or a move was given up, they are the right ones all the same: this command
has data_dir know the store that broker.yaml names.`,
		Example: "  runuser -u kernel-broker -- kernel-broker store adopt",
		Args:    usage(cobra.NoArgs),
		RunE:    withConfig(read, func(ctx context.Context, t transfer, _ []string) error { return t.adopt(ctx) }),
	}
}

func keyCommand(read func() (config, error)) *cobra.Command {
	return &cobra.Command{
		Use:   "key",
		Short: "Make the key that seals the secrets in the store",
		Long: `Make store_key_file, if it is missing, and name the key. Copy the file to the hosts of
all brokers of the cluster, mode 0600, owned by the broker's user, and keep a copy where
the backups are not. The first broker of a cluster makes it by itself.`,
		Example: "  runuser -u kernel-broker -- kernel-broker store key",
		Args:    usage(cobra.NoArgs),
		RunE:    withConfig(read, func(_ context.Context, t transfer, _ []string) error { return t.key() }),
	}
}

func dropCommand(read func() (config, error)) *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use:   "drop-authorities",
		Short: "Remove all keys of the broker's authority but the newest",
		Long: `After a key of the authority was stolen and kernelctl authority rotate has made a new
one: remove the old ones. No broker may act. Nodes with certificates of the old keys
need a token each.

With --all, for a site that lost store_key_file: remove the newest one and the name of
the lost key, too. The next broker that acts makes a new key and a new authority.`,
		Example: `  systemctl stop kernel-broker                                # on all controllers
  runuser -u kernel-broker -- kernel-broker store drop-authorities
  systemctl start kernel-broker`,
		Args: usage(cobra.NoArgs),
		RunE: withConfig(read, func(ctx context.Context, t transfer, _ []string) error { return t.dropAuthorities(ctx, all) }),
	}
	cmd.Flags().BoolVar(&all, "all", false, "remove the newest one, too")
	return cmd
}

// progress says now and then how far a stage is.
func progress(out io.Writer, pause time.Duration) site.Progress {
	last := time.Now()
	return func(stage string, done, of int) {
		if now := time.Now(); now.Sub(last) >= pause {
			last = now
			fmt.Fprintf(out, "%s %d of about %d records\n", stage, done, of)
		}
	}
}

// check prints what a broker would find.
func (t transfer) check(ctx context.Context) error {
	if !t.c.Etcd.external() {
		fmt.Fprintf(t.out, "the records are in %s: etcd.endpoints names no etcd\n", t.c.embeddedPlace().Store)
		return nil
	}
	kept, err := t.openExternal(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = kept.Close() }() // nothing was written
	found, err := kept.Examine(ctx)
	table := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	for _, m := range found.Members {
		fmt.Fprintf(table, "%s\t%s\n", m.Endpoint, memberText(m))
	}
	if ferr := table.Flush(); ferr != nil {
		return ferr
	}
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	limits := kept.Limits()
	fmt.Fprintf(t.out, "the broker may read, write and keep leases below %s\n", t.namespace())
	fmt.Fprintf(t.out, "a commit may have %d writes and %d bytes\n", limits.Writes, limits.Bytes)
	for _, w := range found.Warnings {
		fmt.Fprintf(t.out, "warning: %s\n", w)
	}
	if found.Quota > 0 && found.Quota < t.c.Etcd.QuotaBytes {
		fmt.Fprintf(t.out, "warning: etcd.quota_bytes is %d, and etcd's database may have %d: raise --quota-backend-bytes, or lower etcd.quota_bytes\n", t.c.Etcd.QuotaBytes, found.Quota)
	}
	holder, err := kept.Acting(ctx)
	if err != nil {
		return err
	}
	if holder != "" {
		fmt.Fprintf(t.out, "a broker acts: %s\n", holder)
	}
	place, err := t.c.keyed(ctx, kept, t.c.externalPlace())
	if err == nil {
		err = site.Check(ctx, kept, place)
	}
	if err != nil {
		return err
	}
	if place.Keyed {
		fmt.Fprintf(t.out, "%s has the key of the secrets there\n", t.c.storeKeyFile())
	}
	switch id, _, err := site.Read(ctx, kept); {
	case err != nil:
		return err
	case id == nil:
		fmt.Fprintln(t.out, "a broker that starts gives the records this site's name")
	default:
		fmt.Fprintf(t.out, "the records are this site's, here since %s\n", id.Since.UTC().Format(time.RFC3339))
	}
	return nil
}

func memberText(m etcdstore.Member) string {
	switch {
	case m.Err != nil:
		return m.Err.Error()
	case m.Quota == 0:
		return "etcd " + m.Version
	}
	return fmt.Sprintf("etcd %s, %d of %d MiB used", m.Version, m.Used>>20, m.Quota>>20)
}
