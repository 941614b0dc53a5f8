// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	kb "github.com/kernelbroker/kernelbroker/kernel-broker"
	"github.com/kernelbroker/kernelbroker/kernel-broker/auth/mtls"
	"github.com/kernelbroker/kernelbroker/kernel-broker/broker/store/etcdstore"
	"github.com/kernelbroker/kernelbroker/kernel-broker/internal/safeopen"
)

// etcdConfig is etcd in broker.yaml.
type etcdConfig struct {
	Endpoints []string `yaml:"endpoints"`
	// Prefix begins the keys of all clusters.
	Prefix string `yaml:"prefix"`
	// CA, Certificate and Key are files for https endpoints.
	CA          string `yaml:"ca"`
	Certificate string `yaml:"certificate"`
	Key         string `yaml:"key"`
	// User has its password in a file.
	User         string `yaml:"user"`
	PasswordFile string `yaml:"password_file"`
	// QuotaBytes is the embedded database's largest size; job records may take half of it.
	QuotaBytes int64 `yaml:"quota_bytes"`
}

// external reports whether the store is an etcd that others run.
func (e etcdConfig) external() bool { return len(e.Endpoints) > 0 }

func (e etcdConfig) validate(cluster string) error {
	if _, err := etcdstore.Namespace("", cluster); err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	if _, err := etcdstore.Namespace(e.Prefix, cluster); err != nil {
		return fmt.Errorf("etcd.prefix: %w", err)
	}
	for _, text := range e.Endpoints {
		if err := validateEndpoint(text, e.Endpoints[0]); err != nil {
			return fmt.Errorf("etcd.endpoints: %w", err)
		}
	}
	if n := e.QuotaBytes; n < 64<<20 || n > 8<<30 {
		return fmt.Errorf("etcd.quota_bytes: %d is not within 64 MiB to 8 GiB", n)
	}
	switch {
	case (e.Certificate == "") != (e.Key == ""):
		return errors.New("etcd.certificate and etcd.key belong together")
	case (e.User == "") != (e.PasswordFile == ""):
		return errors.New("etcd.user and etcd.password_file belong together; for the user that a certificate names set neither")
	case e.PasswordFile != "" && !filepath.IsAbs(e.PasswordFile):
		return fmt.Errorf("etcd.password_file: %q is not an absolute path", e.PasswordFile)
	case e.external() && !e.secured() && e.CA+e.Certificate != "":
		return fmt.Errorf("etcd.endpoints: %q does not begin with https://, and so etcd.ca and etcd.certificate have no effect", e.Endpoints[0])
	}
	return nil
}

// validateEndpoint also compares an endpoint with the first: one client has TLS, or has not.
func validateEndpoint(text, first string) error {
	u, err := url.Parse(text)
	if err != nil {
		return err
	}
	scheme, _, _ := strings.Cut(first, ":")
	switch {
	case u.Scheme == "unix" && filepath.IsAbs(u.Path) && u.Host == "":
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("%q is none of https://HOST:PORT, http://HOST:PORT and unix:///PATH", text)
	case u.Hostname() == "" || u.Port() == "" || u.User != nil || strings.TrimRight(u.Path, "/")+u.RawQuery+u.Fragment != "":
		return fmt.Errorf("%q is not %s://HOST:PORT; etcd's own port is 2379", text, u.Scheme)
	}
	if u.Scheme != scheme {
		return fmt.Errorf("%q and %q: all have to begin with the same of https:// and http://", first, text)
	}
	return nil
}

func (e etcdConfig) secured() bool {
	return e.external() && strings.HasPrefix(e.Endpoints[0], "https:")
}

// store is the configuration of the store in an external etcd.
func (e etcdConfig) store(cluster string, log *slog.Logger) etcdstore.Config {
	c := etcdstore.Config{Endpoints: e.Endpoints, Prefix: e.Prefix, Cluster: cluster, User: e.User, Logger: log}
	if e.secured() {
		c.TLS = e.tls
	}
	if e.User != "" {
		c.Password = e.password
	}
	return c
}

// check reads what a connection needs: what cannot work is no matter of etcd's.
func (e etcdConfig) check() error {
	var err error
	if e.secured() {
		_, err = e.tls()
	}
	if e.User != "" {
		_, wrong := e.password()
		err = errors.Join(err, wrong)
	}
	return err
}

// tls reads the files anew for each connection, so that new certificates count without a restart.
func (e etcdConfig) tls() (*tls.Config, error) {
	files := mtls.NewFiles(mtls.Paths{Certificate: e.Certificate, Key: e.Key, Authorities: e.CA})
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if e.CA != "" {
		authorities, err := files.Authorities()
		if err != nil {
			return nil, fmt.Errorf("etcd.ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		for _, a := range authorities {
			config.RootCAs.AddCert(a)
		}
	}
	pair, err := files.Certificate()
	if err != nil {
		return nil, fmt.Errorf("etcd.certificate: %w", err)
	}
	if pair == nil {
		return config, nil
	}
	if end := pair.Leaf.NotAfter; time.Now().After(end) {
		return nil, fmt.Errorf("etcd.certificate: %q ended on %s, have a new one made: %w", e.Certificate, end.UTC().Format(time.RFC3339), kb.ErrFailedPrecondition)
	}
	// Shown also where the server names other authorities, which then says that it refuses this one.
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair, nil }
	return config, nil
}

// examine finds out whether the broker can work with an etcd that others run. It returns how large the database may become.
func (e etcdConfig) examine(ctx context.Context, kept *etcdstore.Store, log *slog.Logger) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	found, err := kept.Examine(ctx)
	if err != nil {
		return 0, fmt.Errorf("etcd: %w", err)
	}
	for _, w := range found.Warnings {
		log.Warn("something of this etcd should be mended", "what", w)
	}
	for _, m := range found.Members {
		log.Info("etcd", "endpoint", m.Endpoint, "version", m.Version, "used_bytes", m.Used, "quota_bytes", m.Quota)
	}
	if found.Quota > 0 && found.Quota < e.QuotaBytes {
		log.Warn("etcd's database is smaller than etcd.quota_bytes, and the records of jobs take half of it: raise --quota-backend-bytes, or lower etcd.quota_bytes",
			"quota_backend_bytes", found.Quota, "quota_bytes", e.QuotaBytes)
		return found.Quota, nil
	}
	return e.QuotaBytes, nil
}

const maxPassword = 4096

// password reads the file anew each time that etcd asks for it.
func (e etcdConfig) password() (string, error) {
	text, err := safeopen.Read(e.PasswordFile, maxPassword, func(info fs.FileInfo) error {
		if mode := info.Mode().Perm(); mode&0o077 != 0 {
			return fmt.Errorf("%q: others may read it (mode %04o): chmod 600, and set another password: %w", e.PasswordFile, mode, kb.ErrDenied)
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("etcd.password_file: %w", err)
	}
	password := strings.TrimRight(string(text), "\r\n")
	if password == "" || strings.ContainsAny(password, "\r\n") {
		return "", fmt.Errorf("etcd.password_file: %q is not one line with a password: %w", e.PasswordFile, kb.ErrInvalid)
	}
	return password, nil
}

// warnOpen says that nothing protects what is sent.
func (e etcdConfig) warnOpen(log *slog.Logger) {
	u, err := url.Parse(e.Endpoints[0])
	if err != nil || u.Scheme != "http" {
		return
	}
	if ip := net.ParseIP(u.Hostname()); ip != nil && ip.IsLoopback() || u.Hostname() == "localhost" {
		return
	}
	log.Warn("etcd is reached without TLS (http): records, and the password, can be read and changed on their way", "endpoints", e.Endpoints)
}
