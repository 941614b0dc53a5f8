// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdserver"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdstore"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/sealed"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/site"
)

// etcdDir is the folder of the embedded store.
func (c config) etcdDir() string { return filepath.Join(c.DataDir, "etcd") }

// embeddedPlace is the store in the data folder.
func (c config) embeddedPlace() site.Place {
	return site.Place{Cluster: c.Cluster, Dir: c.DataDir, Kind: site.Embedded,
		Store: "the embedded store in " + c.etcdDir(), Remove: "stop the broker and remove " + c.etcdDir()}
}

// externalPlace is the store in an etcd that others run.
func (c config) externalPlace() site.Place {
	namespace, _ := etcdstore.Namespace(c.Etcd.Prefix, c.Cluster) // was validated
	return site.Place{Cluster: c.Cluster, Dir: c.DataDir, Kind: site.External, Left: etcdserver.HasData(c.etcdDir()),
		Store: fmt.Sprintf("etcd %q below %s", c.Etcd.Endpoints, namespace), Remove: "etcdctl del --prefix " + namespace}
}

// storeKeyFile has the key of the secrets in the store.
func (c config) storeKeyFile() string {
	return cmp.Or(c.StoreKeyFile, filepath.Join(c.DataDir, "store.key"))
}

// secrets opens the secrets of a store. A broker that acts begins them.
func (c config) secrets(ctx context.Context, kept store.Store, begin bool) (*sealed.Box, error) {
	return sealed.Open(ctx, kept, sealed.Options{Cluster: c.Cluster, File: c.storeKeyFile(), Begin: begin})
}

// keyed is the place where the records are. Who has the key of its secrets is of their site, also with a new data folder.
func (c config) keyed(ctx context.Context, kept store.Store, p site.Place) (site.Place, error) {
	_, err := c.secrets(ctx, kept, false)
	p.Keyed = err == nil
	if errors.Is(err, kb.ErrNotFound) {
		err = nil
	}
	return p, err
}

func (c config) place() site.Place {
	if c.Etcd.external() {
		return c.externalPlace()
	}
	return c.embeddedPlace()
}

// historyAge is how long a site's store is looked at before its etcd is said to compact nothing.
const historyAge = 24 * time.Hour

// claimSite is for a broker that acts: it has the store and the data folder of one site.
func claimSite(ctx context.Context, c config, kept *etcdstore.Store, log *slog.Logger) error {
	place, err := c.keyed(ctx, kept, c.place())
	if err != nil {
		return err
	}
	id, err := site.Claim(ctx, kept, place, time.Now())
	if err != nil {
		return err
	}
	if !c.Etcd.external() || time.Since(id.Since) < historyAge {
		return nil
	}
	grows, err := kept.Uncompacted(ctx, site.Key)
	if err != nil {
		return err
	}
	if grows {
		log.Warn("nothing compacts this etcd, so its database fills: start its members with --auto-compaction-retention=1h", "history_since", id.Since)
	}
	return nil
}
