// SPDX-License-Identifier: Apache-2.0

package client

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFallbackConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "client.yaml")
	text := "brokr: unix:///x\nscontrol: /opt/slurm/bin/scontrol # ours\nslurm_conf: \"/etc/slurm-llnl/slurm.conf\"\nstate_dir: relative\nhold_after: 2\n\tbroken: [\nlog_file: /var/log/hook.log\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadConfig(path); err == nil {
		t.Fatal("the file is read")
	}
	want := DefaultConfig()
	want.Scontrol, want.SlurmConf, want.HoldAfter, want.LogFile = "/opt/slurm/bin/scontrol", "/etc/slurm-llnl/slurm.conf", 2, "/var/log/hook.log"
	if got := FallbackConfig(path); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := FallbackConfig(path + "x"); got != DefaultConfig() {
		t.Errorf("of no file: %+v", got)
	}
	if err := os.WriteFile(path, []byte("hold_after: 0\nhold_after: many\nscontrol: ../x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := FallbackConfig(path); got != DefaultConfig() {
		t.Errorf("from invalid values: %+v", got)
	}
}
