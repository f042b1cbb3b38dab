package telemetry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"
)

type stringer struct{ s string }

func (s stringer) String() string { return s.s }

type valuer struct{ s string }

func (v valuer) LogValue() slog.Value { return slog.GroupValue(slog.String("inner", v.s)) }

type record struct {
	Password string
	URL      string
	n        int
}

func TestLoggerMasksEverywhere(t *testing.T) {
	const secret = `hun"ter\2 value`
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			r := NewRedactor()
			var buf bytes.Buffer
			log := NewLogger(&buf, "info", format, r)
			early := log.With("early", "x"+secret, slog.Group("g", "token", "shorttok"))
			r.Set([]string{secret}) // also after With
			early.WithGroup("h").Info("msg "+secret,
				"error", fmt.Errorf("step: %w", errors.New("with "+secret)),
				"stringer", stringer{secret}, "valuer", valuer{secret}, "bytes", []byte(secret),
				"any", map[string]any{"k": []string{secret}}, "struct", record{Password: "pw-of-struct", URL: "https://u:pw-of-url@h/", n: 1},
				"api_key", "by-name", "authorization", []string{"list-by-name"}, slog.Group("deep", "cookie", "deep-by-name"),
				"url", "https://h/?access_token=pw-of-query", "quoted \"name", "Bearer pw.of-bearer1",
				"max_tokens", 4711, "ok", true, "password", 12345)
			got := buf.String()
			for _, bad := range []string{"hun", "ter", "shorttok", "pw-of", "pw.of", "by-name", "12345"} {
				if strings.Contains(got, bad) {
					t.Errorf("%q is in %s", bad, got)
				}
			}
			for _, want := range []string{"msg ****", "4711", "step: with ****", "https://****@h/"} {
				if !strings.Contains(got, want) {
					t.Errorf("%q is not in %s", want, got)
				}
			}
			if format == "json" && !json.Valid(buf.Bytes()) || strings.Count(got, "\n") != 1 {
				t.Errorf("not one whole line: %q", got)
			}
		})
	}
}

func TestLoggerKeepsTheRest(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var plain, masked bytes.Buffer
		strip := func(b *bytes.Buffer) string { _, rest, _ := strings.Cut(b.String(), "level"); return rest }
		for w, r := range map[*bytes.Buffer]*Redactor{&plain: nil, &masked: NewRedactor()} {
			NewLogger(w, "debug", format, r).With("a", 1.5).Debug("a \"quoted\"\nmessage: invalid token: expired", "k k", "v=w", "empty", "",
				"token_count", 3, "token", "", "nil", nil, "secret", false, "é", "ü\x00\xff", "list", []int{1, 2})
		}
		if strip(&plain) != strip(&masked) {
			t.Errorf("%s:\n got %s\nwant %s", format, masked.String(), plain.String())
		}
	}
}

func TestLoggerLeavesEmptyOut(t *testing.T) {
	for format, want := range map[string]string{"text": `level=INFO msg="" for=0s n=0 g.b=c`, "json": `"level":"INFO","msg":"","for":0,"n":0,"g":{"b":"c"}}`} {
		var b bytes.Buffer
		NewLogger(&b, "info", format, NewRedactor()).With("with", "").Info("", "says", "", "for", time.Duration(0), "n", 0, slog.Group("g", "a", "", "b", "c"))
		if got := strings.TrimSpace(b.String()); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %s, want %s at its end", format, got, want)
		}
	}
}

func TestLoggerLevels(t *testing.T) {
	for level, want := range map[string]int{"debug": 4, "info": 3, "WARN": 2, "error": 1, "": 3, "nonsense": 3} {
		var buf bytes.Buffer
		log := NewLogger(&buf, level, "text", NewRedactor())
		log.Debug("d")
		log.Info("i")
		log.Warn("w")
		log.Error("e")
		if got := strings.Count(buf.String(), "\n"); got != want {
			t.Errorf("level %q: %d lines, want %d", level, got, want)
		}
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestLoggerPassesWriteErrors(t *testing.T) {
	h := NewLogger(brokenWriter{}, "info", "text", NewRedactor()).Handler()
	if err := h.Handle(t.Context(), slog.Record{Message: "x"}); err == nil {
		t.Error("no error from a broken writer")
	}
}

func FuzzLogLine(f *testing.F) {
	f.Add("msg", "key", "value", "secret value")
	f.Add("a=b \"c", "k\"k", `v\`, `x"y z`)
	f.Fuzz(func(t *testing.T, msg, key, value, secret string) {
		if len(secret) < minKnown || strings.ContainsAny(secret, "*") || strings.ToValidUTF8(secret, "") != secret {
			t.Skip()
		}
		r := NewRedactor()
		r.Set([]string{secret})
		var buf bytes.Buffer
		NewLogger(&buf, "info", "text", r).Info(msg+secret, key+secret, value+secret)
		_, after, _ := strings.Cut(buf.String(), " msg=")
		if strings.Contains(after, secret) && !strings.Contains(" = \n", secret) {
			// What the line itself is made of may look like a secret of few characters.
			for _, s := range []string{msg, key, value} {
				if strings.Contains(mask+" "+s+mask, secret) {
					t.Skip()
				}
			}
			t.Errorf("%q is in %q", secret, buf.String())
		}
		if strings.Count(buf.String(), "\n") != 1 {
			t.Errorf("not one line: %q", buf.String())
		}
	})
}

func BenchmarkLogger(b *testing.B) {
	r := NewRedactor()
	r.Set([]string{"some-secret-value"})
	for _, bb := range []struct {
		name, format, level string
		r                   *Redactor
	}{{"off", "text", "error", r}, {"text", "text", "info", r}, {"text without", "text", "info", nil}, {"json", "json", "info", r}} {
		log := NewLogger(io.Discard, bb.level, bb.format, bb.r)
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				log.Info("call finished", "server", "files", "method", "tools/call", "outcome", "ok", "session", "ses_0123")
			}
		})
	}
}
