// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kernelbroker/kernelbroker/kernel-broker/api/client"
	"github.com/kernelbroker/kernelbroker/kernel-broker/doctor"
)

// somebody is a user who is not root: nobody where root runs the tests, else who runs them.
func somebody(t *testing.T) account {
	t.Helper()
	name := "nobody"
	if os.Getuid() != 0 {
		me, err := user.Current()
		if err != nil {
			t.Fatal(err)
		}
		name = me.Username
	}
	a, err := lookUp(name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// open is a folder that every user may enter.
func open(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for up := dir; up != os.TempDir() && up != "/"; up = filepath.Dir(up) {
		if err := os.Chmod(up, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// What SlurmUser cannot open is found by trying, in a folder that is closed, too.
func TestSlurmUser(t *testing.T) {
	u := somebody(t)
	const script = "#!/bin/sh\n"
	for name, c := range map[string]struct {
		client, lua, hook os.FileMode
		folder            os.FileMode
		closed            []string
	}{
		"as it should be":          {0o644, 0o644, 0o755, 0o755, nil},
		"settings of root's":       {0o200, 0o644, 0o755, 0o755, []string{"client.yaml settings"}},
		"a script of root's":       {0o644, 0o200, 0o755, 0o755, []string{"job_submit.lua script"}},
		"a hook of root's":         {0o644, 0o644, 0o600, 0o755, []string{"prolog program"}},
		"settings in a closed one": {0o644, 0o644, 0o755, 0o600, []string{"client.yaml settings"}},
	} {
		t.Run(name, func(t *testing.T) {
			if os.Getuid() != 0 && c.folder == 0o600 {
				t.Skip("who may not enter a folder does not see that there is a file")
			}
			dir := open(t)
			s := &surveyor{controller: true, client: client.DefaultConfig(), site: &doctor.Site{}}
			s.Config = write(t, dir+"/etc/client.yaml", "", c.client)
			hook := write(t, dir+"/prolog", script, c.hook)
			write(t, dir+"/job_submit.lua", "", c.lua)
			s.site.Slurm = doctor.Known(doctor.ParseSlurmConfig("SlurmUser = " + u.name + "(1)\nJobSubmitPlugins = lua\nSLURM_CONF = " + dir + "/slurm.conf\n"))
			s.site.Programs = map[string]doctor.Fact[[]doctor.Program]{"PrologSlurmctld": doctor.Known([]doctor.Program{{Path: hook}})}
			if err := os.Chmod(dir+"/etc", c.folder); err != nil {
				t.Fatal(err)
			}
			s.slurmUser(t.Context())
			if s.site.SlurmUser.Value == nil {
				t.Fatal(s.site.SlurmUser.Why)
			}
			var closed []string
			for _, f := range s.site.SlurmUser.Value.Closed {
				closed = append(closed, filepath.Base(f.Path)+" "+string(f.Use))
			}
			if strings.Join(closed, ",") != strings.Join(c.closed, ",") {
				t.Errorf("closed: %q, want %q", closed, c.closed)
			}
		})
	}
	s := &surveyor{site: &doctor.Site{}}
	if s.slurmUser(t.Context()); s.site.SlurmUser.Why != noController {
		t.Errorf("on another host: %+v", s.site.SlurmUser)
	}
}

// Root can read every snapshot; sbatch runs as a user.
func TestSnapshotThatUsersCannotRead(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can try what another user may open")
	}
	dir := open(t)
	path := write(t, dir+"/folder/catalog.snapshot", "kernel-broker-snapshot 1\nend\n", 0o644)
	s := &surveyor{site: &doctor.Site{Health: doctor.Unknown[doctor.Health]("the broker does not answer")}}
	closed := func() string {
		s.snapshot(t.Context(), path)
		if s.site.Snapshot.Value == nil {
			return ""
		}
		return s.site.Snapshot.Value.Closed
	}
	if text := closed(); text != "" {
		t.Errorf("readable by all: %q", text)
	}
	if err := os.Chmod(dir+"/folder", 0o700); err != nil {
		t.Fatal(err)
	}
	if text := closed(); text != "users cannot read it" {
		t.Errorf("in a closed folder: %q", text)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if text := closed(); text != "users cannot read it" {
		t.Errorf("a file of root's: %q", text)
	}
}
