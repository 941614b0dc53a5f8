// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"fmt"
	"io"
	"log/slog"
	"log/syslog"
	"os"
)

// openLog returns a log that writes to stderr, for manual runs, and to the file or else to syslog. A missing log does
// not stop a job.
func openLog(stderr io.Writer, path, name string) (log *slog.Logger, done func()) {
	second, err := openSecond(path, name)
	if err != nil {
		log = slog.New(slog.NewTextHandler(stderr, nil)).With("hook", name)
		log.Warn("log file and syslog unavailable", "error", err)
		return log, func() {}
	}
	log = slog.New(slog.NewMultiHandler(slog.NewTextHandler(stderr, nil), slog.NewTextHandler(second, nil))).With("hook", name, "pid", os.Getpid())
	return log, func() { _ = second.Close() }
}

func openSecond(path, name string) (io.WriteCloser, error) {
	if path == "" {
		w, err := syslog.New(syslog.LOG_DAEMON|syslog.LOG_INFO, "kernel-broker-"+name)
		if err != nil {
			return nil, fmt.Errorf("system's log: %w", err)
		}
		return w, nil
	}
	return os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
}
