// SPDX-License-Identifier: Apache-2.0

package etcdserver

import (
	"context"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// bridge sends etcd's log to slog. etcd's Info becomes Debug; zap still ends the process after a Fatal.
func bridge(log *slog.Logger) *zap.Logger {
	return zap.New(&core{log.Handler().WithAttrs([]slog.Attr{slog.String("component", "etcd")})})
}

type core struct{ handler slog.Handler }

func level(l zapcore.Level) slog.Level {
	switch {
	case l >= zapcore.ErrorLevel:
		return slog.LevelError
	case l == zapcore.WarnLevel:
		return slog.LevelWarn
	case l == zapcore.InfoLevel:
		return slog.LevelDebug
	default:
		return slog.LevelDebug - 4
	}
}

func (c *core) Enabled(l zapcore.Level) bool {
	return c.handler.Enabled(context.Background(), level(l))
}

func (c *core) With(fields []zapcore.Field) zapcore.Core {
	return &core{c.handler.WithAttrs(attrs(fields))}
}

func (c *core) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

func (c *core) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	record := slog.NewRecord(entry.Time, level(entry.Level), entry.Message, 0)
	record.AddAttrs(attrs(fields)...)
	return c.handler.Handle(context.Background(), record)
}

func (c *core) Sync() error { return nil }

// attrs lets zap encode a field, which is the only way to read it.
func attrs(fields []zapcore.Field) []slog.Attr {
	out := make([]slog.Attr, 0, len(fields))
	for _, field := range fields {
		encoder := zapcore.NewMapObjectEncoder()
		field.AddTo(encoder)
		for key, value := range encoder.Fields {
			out = append(out, slog.Any(key, value))
		}
	}
	return out
}
