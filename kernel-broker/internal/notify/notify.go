// SPDX-License-Identifier: Apache-2.0

// Package notify tells the service manager that a daemon is ready, what it does, and that its main loop goes on.
// A daemon without systemd's NOTIFY_SOCKET tells nobody.
package notify

import (
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Service is this process for the service manager. It is safe for concurrent use.
type Service struct {
	log *slog.Logger
	// every is the least time between two signs of life; 0: none is expected.
	every time.Duration

	mu     sync.Mutex
	status string
	alive  time.Time
}

// New reads what the service manager expects from the environment.
func New(log *slog.Logger) *Service {
	limit, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("the service manager's watchdog is not understood", "error", err)
	}
	return &Service{log: log, every: limit / 4}
}

// Ready reports that the daemon has started, with what it does.
func (s *Service) Ready(status string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = line(status)
	s.send(daemon.SdNotifyReady + "\nSTATUS=" + s.status)
}

// Status reports what the daemon does, if that has changed.
func (s *Service) Status(status string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if status = line(status); status != s.status {
		s.status = status
		s.send("STATUS=" + status)
	}
}

// Alive is called in each turn of the daemon's main loop. A daemon whose loop hangs is ended and started again.
func (s *Service) Alive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.every == 0 || time.Since(s.alive) < s.every {
		return
	}
	s.alive = time.Now()
	s.send(daemon.SdNotifyWatchdog)
}

// Stopping reports that the daemon ends.
func (s *Service) Stopping() { s.send(daemon.SdNotifyStopping) }

func (s *Service) send(message string) {
	if _, err := daemon.SdNotify(false, message); err != nil {
		s.log.Warn("the service manager cannot be told", "message", message, "error", err)
	}
}

// line keeps a text from adding assignments to a message.
func line(text string) string { return strings.Join(strings.Fields(text), " ") }
