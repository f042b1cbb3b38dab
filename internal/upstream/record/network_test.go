package record_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/upstream/record"
)

// TestNetwork holds how a connection is written down, by what became of it and
// by the server's journal mode.
func TestNetwork(t *testing.T) {
	began := time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	made := driver.Network{
		Server: "web", Session: "ses_1", Ordinal: 2, Host: "example.org", Port: 443, Address: "93.184.216.34:443", Protocol: "tls",
		Allowed: true, Sent: 517, Received: 9007199254740993, Began: began, Took: 1500 * time.Millisecond,
	}
	refused, failed, six := made, made, made
	refused.Allowed, refused.Reason, refused.Sent, refused.Received, refused.Address, refused.Protocol = false, "not in the list, hunter2hunter2", 0, 0, "", ""
	failed.Reason = "it was cut off"
	six.Host = "2606:4700::1"
	for _, tt := range []struct {
		name, mode string
		n          driver.Network
		entry      string // its name
		outcome    string
		error      string
		params     string
	}{
		{"made", "full", made, "example.org:443", "ok", "", `{"arguments":{"sent":517,"received":9007199254740993,"protocol":"tls","address":"93.184.216.34:443"}}`},
		{"made, meta", "meta", made, "example.org:443", "ok", "", `{"arguments":{"sent":517,"received":9007199254740993,"protocol":"tls"}}`},
		{"refused", "full", refused, "example.org:443", string(api.KindRefused), "not in the list, ", `{"arguments":{"sent":0,"received":0}}`},
		{"refused, meta", "meta", refused, "example.org:443", string(api.KindRefused), "", `{"arguments":{"sent":0,"received":0}}`},
		{"failed", "full", failed, "example.org:443", string(api.KindInfrastructure), "it was cut off", `{"arguments":{"sent":517,"received":9007199254740993,"protocol":"tls","address":"93.184.216.34:443"}}`},
		{"IPv6", "meta", six, "[2606:4700::1]:443", "ok", "", `{"arguments":{"sent":517,"received":9007199254740993,"protocol":"tls"}}`},
		{"off", "off", made, "", "", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j := openJournal(t)
			redact := telemetry.NewRedactor()
			redact.Set([]string{"hunter2hunter2"})
			s := record.NewServer("web", tt.mode, record.Options{Journal: j, Redact: redact})
			s.Network("web~2", "ada", tt.n)
			if f := s.Figures(); f.Calls != 0 || f.Failures != 0 || f.Last != nil {
				t.Errorf("it counts as a call: %+v", f)
			}
			list, err := j.List(t.Context(), store.CallFilter{Server: "web~2", Session: "ses_1"})
			if err != nil {
				t.Fatal(err)
			}
			if tt.mode == "off" {
				if len(list) != 0 {
					t.Errorf("it is in the journal: %+v", list)
				}
				return
			}
			if len(list) != 1 {
				t.Fatalf("the journal has %+v", list)
			}
			e := list[0]
			if e.Method != driver.MethodNetwork || e.Name != tt.entry || e.Principal != "ada" || e.Outcome != tt.outcome || e.Mode != tt.mode ||
				!e.At.Equal(began) || e.Duration != made.Took || string(e.Params) != tt.params {
				t.Errorf("entry %+v with %s", e, e.Params)
			}
			if !strings.HasPrefix(e.Error, tt.error) || tt.error == "" && e.Error != "" || strings.Contains(e.Error, "hunter2") {
				t.Errorf("error %q, want %q", e.Error, tt.error)
			}
		})
	}
}

// TestNetworkJournalFails holds that a journal that can't be written is counted and
// does no other harm.
func TestNetworkJournalFails(t *testing.T) {
	j := openJournal(t)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	m := telemetry.NewMetrics("test", func() telemetry.Snapshot { return telemetry.Snapshot{} })
	s := record.NewServer("web", "full", record.Options{Journal: j, Metrics: m, Redact: telemetry.NewRedactor(), Log: slog.New(slog.DiscardHandler), Trouble: &record.Trouble{}})
	s.Network("web", "ada", driver.Network{Server: "web", Host: "example.org", Port: 443})
	record.NewServer("web", "full", record.Options{Redact: telemetry.NewRedactor()}).Network("web", "ada", driver.Network{})
}
