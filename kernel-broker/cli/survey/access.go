// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/kernelbroker/kernelbroker/kernel-broker/api/client"
	"github.com/kernelbroker/kernelbroker/kernel-broker/doctor"
)

// account is a user whose rights are tried.
type account struct {
	name, group string
	uid, gid    uint32
	groups      []uint32
}

// nobody stands for users who are in no group that a file might be for.
var nobody = account{name: "nobody", group: "nogroup", uid: 65534, gid: 65534}

// errNotRoot: only root can try what others may do.
var errNotRoot = errors.New("only root can try what another user may open")

// may reports whether a user may read ("-r") or execute ("-x") a file. It is tried, since modes do not tell of access
// lists, of folders above and of what a network file system allows.
func (u account) may(ctx context.Context, how, path string) (bool, error) {
	cmd := exec.CommandContext(ctx, "test", how, path) // #nosec G204 -- no shell
	if me := os.Getuid(); me != int(u.uid) {
		if me != 0 {
			return false, errNotRoot
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: u.uid, Gid: u.gid, Groups: u.groups}}
	}
	cmd.Dir = "/"
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		return false, nil
	}
	return err == nil, err
}

// lookUp is the account of a user of this host.
func lookUp(name string) (account, error) {
	found, err := user.Lookup(name)
	if err != nil {
		return account{}, err
	}
	number := func(text string) uint32 {
		n, wrong := strconv.ParseUint(text, 10, 32)
		err = errors.Join(err, wrong)
		return uint32(n)
	}
	a := account{name: name, group: found.Gid, uid: number(found.Uid), gid: number(found.Gid)}
	if group, wrong := user.LookupGroupId(found.Gid); wrong == nil {
		a.group = group.Name
	}
	ids, wrong := found.GroupIds()
	err = errors.Join(err, wrong)
	for _, id := range ids {
		a.groups = append(a.groups, number(id))
	}
	return a, err
}

// slurmAccount is SlurmUser's.
func (s *surveyor) slurmAccount() (account, error) {
	if s.site.Slurm.Value == nil {
		return account{}, errors.New(s.site.Slurm.Why)
	}
	name, _, _ := strings.Cut(cmp.Or(s.site.Slurm.Value.Value("SlurmUser"), "root"), "(")
	return lookUp(name)
}

// slurmUser tries what slurmctld and its hooks open as SlurmUser. What is not there is for other checks.
func (s *surveyor) slurmUser(ctx context.Context) {
	if !s.controller {
		s.site.SlurmUser = doctor.Unknown[doctor.SlurmUser](noController)
		return
	}
	owner, err := s.slurmAccount()
	if err != nil {
		s.site.SlurmUser = doctor.Unknown[doctor.SlurmUser](err.Error())
		return
	}
	u := doctor.SlurmUser{Name: owner.name, Group: owner.group}
	for _, f := range s.slurmFiles() {
		how := "-r"
		if f.Use == doctor.UseProgram {
			how = "-x"
		}
		if f.Path == "" || !exists(f.Path) {
			continue
		}
		opens, err := owner.may(ctx, how, f.Path)
		if err != nil {
			s.site.SlurmUser = doctor.Unknown[doctor.SlurmUser](fmt.Sprintf("%s, user %s: %v", f.Path, owner.name, err))
			return
		}
		if !opens {
			u.Closed = append(u.Closed, f)
		}
	}
	s.site.SlurmUser = doctor.Known(u)
}

func (s *surveyor) slurmFiles() []doctor.ClosedFile {
	files := []doctor.ClosedFile{{Path: s.Config, Use: doctor.UseSettings}, {Path: s.client.SlurmConf, Use: doctor.UseSettings}}
	if !client.Local(s.client.Broker) {
		files = append(files, doctor.ClosedFile{Path: s.client.Trust.CA, Use: doctor.UseSettings})
	}
	if c := s.site.Slurm.Value; c.Has("JobSubmitPlugins", "lua") {
		files = append(files, doctor.ClosedFile{Path: filepath.Join(s.slurmDir(), "job_submit.lua"), Use: doctor.UseScript})
	}
	for _, p := range programs {
		if fact := s.site.Programs[p.key].Value; fact != nil && !p.onNodes {
			for _, program := range *fact {
				files = append(files, doctor.ClosedFile{Path: program.Path, Use: doctor.UseProgram})
			}
		}
	}
	return files
}

// closedToUsers is why users who are in no special group cannot read a file; empty if they can, or if nobody can say.
func closedToUsers(ctx context.Context, path string) string {
	if opens, err := nobody.may(ctx, "-r", path); err == nil && !opens {
		return "users cannot read it"
	}
	return ""
}
