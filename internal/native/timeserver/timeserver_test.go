package timeserver

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/tine-mcp/tine/internal/native/nativetest"
	"github.com/tine-mcp/tine/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func at(t *testing.T, rfc3339 string) func() time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339, rfc3339)
	if err != nil {
		t.Fatal(err)
	}
	return func() time.Time { return v }
}

func decode[T any](t *testing.T, res *mcp.CallToolResult) T {
	t.Helper()
	if res.IsError {
		t.Fatalf("tool failed: %s", nativetest.Text(res))
	}
	var fromText, structured T
	if err := json.Unmarshal([]byte(nativetest.Text(res)), &fromText); err != nil {
		t.Fatalf("text is not JSON: %v", err)
	}
	data, err := json.Marshal(res.StructuredContent)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &structured); err != nil {
		t.Fatal(err)
	}
	nativetest.Same(t, "text and structured content", fromText, structured)
	return structured
}

func TestCurrentTime(t *testing.T) {
	tests := []struct {
		now, zone string
		want      Moment
	}{
		{"2025-07-01T12:00:00Z", "Europe/Paris", Moment{"Europe/Paris", "2025-07-01T14:00:00+02:00", "Tuesday", true}},
		{"2025-01-01T12:00:00Z", "Europe/Paris", Moment{"Europe/Paris", "2025-01-01T13:00:00+01:00", "Wednesday", false}},
		{"2025-01-01T20:00:00Z", "Asia/Kathmandu", Moment{"Asia/Kathmandu", "2025-01-02T01:45:00+05:45", "Thursday", false}},
		{"2025-03-09T09:59:59Z", "America/Los_Angeles", Moment{"America/Los_Angeles", "2025-03-09T01:59:59-08:00", "Sunday", false}},
		{"2025-03-09T10:00:00Z", "America/Los_Angeles", Moment{"America/Los_Angeles", "2025-03-09T03:00:00-07:00", "Sunday", true}},
		{"2025-01-01T00:00:00Z", "UTC", Moment{"UTC", "2025-01-01T00:00:00+00:00", "Wednesday", false}},
		{"2025-01-01T00:00:00Z", "Australia/Lord_Howe", Moment{"Australia/Lord_Howe", "2025-01-01T11:00:00+11:00", "Wednesday", true}},
	}
	for _, era := range nativetest.Eras() {
		for _, tt := range tests {
			t.Run(era+"/"+tt.zone+"/"+tt.now, func(t *testing.T) {
				cs := nativetest.Connect(t, newServer("UTC", at(t, tt.now)), era, nil)
				got := decode[Moment](t, nativetest.Call(t, cs, "get_current_time", map[string]any{"timezone": tt.zone}))
				if got != tt.want {
					t.Errorf("got %+v, want %+v", got, tt.want)
				}
			})
		}
	}
}

func TestConvertTime(t *testing.T) {
	tests := []struct {
		name, now, from, clock, to string
		source, target, diff       string
		err                        string
	}{
		{name: "plain", now: "2025-01-15T12:00:00Z", from: "America/New_York", clock: "16:30", to: "Asia/Tokyo",
			source: "2025-01-15T16:30:00-05:00", target: "2025-01-16T06:30:00+09:00", diff: "+14.0h"},
		{name: "one digit", now: "2025-01-15T12:00:00Z", from: "UTC", clock: "9:5", to: "UTC",
			source: "2025-01-15T09:05:00+00:00", target: "2025-01-15T09:05:00+00:00", diff: "+0.0h"},
		{name: "quarter hours", now: "2025-01-15T12:00:00Z", from: "UTC", clock: "10:00", to: "Asia/Kathmandu",
			source: "2025-01-15T10:00:00+00:00", target: "2025-01-15T15:45:00+05:45", diff: "+5.75h"},
		{name: "half hours back", now: "2025-01-15T12:00:00Z", from: "UTC", clock: "10:00", to: "America/St_Johns",
			source: "2025-01-15T10:00:00+00:00", target: "2025-01-15T06:30:00-03:30", diff: "-3.5h"},
		// The date is today's in the source, which may be yesterday or tomorrow here.
		{name: "date of the source", now: "2025-01-15T23:30:00Z", from: "Asia/Tokyo", clock: "00:10", to: "UTC",
			source: "2025-01-16T00:10:00+09:00", target: "2025-01-15T15:10:00+00:00", diff: "-9.0h"},
		{name: "skipped hour", now: "2025-03-30T12:00:00Z", from: "Europe/Warsaw", clock: "02:30", to: "UTC", err: "does not exist"},
		{name: "after the skip", now: "2025-03-30T12:00:00Z", from: "Europe/Warsaw", clock: "03:00", to: "UTC",
			source: "2025-03-30T03:00:00+02:00", target: "2025-03-30T01:00:00+00:00", diff: "-2.0h"},
		{name: "repeated hour is the first", now: "2025-10-26T12:00:00Z", from: "Europe/Warsaw", clock: "02:30", to: "UTC",
			source: "2025-10-26T02:30:00+02:00", target: "2025-10-26T00:30:00+00:00", diff: "-2.0h"},
		{name: "repeated hour in the west", now: "2025-11-02T12:00:00Z", from: "America/New_York", clock: "01:30", to: "UTC",
			source: "2025-11-02T01:30:00-04:00", target: "2025-11-02T05:30:00+00:00", diff: "+4.0h"},
		{name: "skipped day", now: "2011-12-30T10:00:00Z", from: "Pacific/Apia", clock: "12:00", to: "UTC",
			source: "2011-12-31T12:00:00+14:00", target: "2011-12-30T22:00:00+00:00", diff: "-14.0h"},
		{name: "hour 24", now: "2025-01-15T12:00:00Z", from: "UTC", clock: "24:00", to: "UTC", err: "HH:MM"},
		{name: "minute 60", now: "2025-01-15T12:00:00Z", from: "UTC", clock: "10:60", to: "UTC", err: "HH:MM"},
		{name: "seconds", now: "2025-01-15T12:00:00Z", from: "UTC", clock: "10:00:00", to: "UTC", err: "HH:MM"},
		{name: "newline", now: "2025-01-15T12:00:00Z", from: "UTC", clock: "10:00\n", to: "UTC", err: "HH:MM"},
		{name: "empty time", now: "2025-01-15T12:00:00Z", from: "UTC", clock: "", to: "UTC", err: "HH:MM"},
		{name: "bad source", now: "2025-01-15T12:00:00Z", from: "Mars/Base", clock: "10:00", to: "UTC", err: "invalid timezone"},
		{name: "bad target", now: "2025-01-15T12:00:00Z", from: "UTC", clock: "10:00", to: "../../etc/passwd", err: "invalid timezone"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cs := nativetest.Connect(t, newServer("UTC", at(t, tt.now)), nativetest.Modern, nil)
			res := nativetest.Call(t, cs, "convert_time", map[string]any{"source_timezone": tt.from, "time": tt.clock, "target_timezone": tt.to})
			if tt.err != "" {
				if !res.IsError || !strings.Contains(nativetest.Text(res), tt.err) {
					t.Fatalf("got %q, want an error with %q", nativetest.Text(res), tt.err)
				}
				return
			}
			got := decode[Conversion](t, res)
			if got.Source.Datetime != tt.source || got.Target.Datetime != tt.target || got.TimeDifference != tt.diff {
				t.Errorf("got %+v, want %s %s %s", got, tt.source, tt.target, tt.diff)
			}
		})
	}
}

func TestRefusedZones(t *testing.T) {
	cs := nativetest.Connect(t, newServer("UTC", time.Now), nativetest.Legacy, nil)
	for _, name := range []string{"", "Local", "Nope/Nowhere", "right/Europe/Paris", "posix/UTC", "posixrules", "../UTC", "/etc/localtime", "Europe", "a\x00b"} {
		if res := nativetest.Call(t, cs, "get_current_time", map[string]any{"timezone": name}); !res.IsError {
			t.Errorf("%q is accepted: %s", name, nativetest.Text(res))
		}
	}
	if res := nativetest.Call(t, cs, "get_current_time", map[string]any{}); !res.IsError {
		t.Error("a call without timezone is accepted")
	}
}

func TestSettings(t *testing.T) {
	s, err := New(map[string]any{"local_timezone": "Asia/Tokyo"})
	if err != nil {
		t.Fatal(err)
	}
	cs := nativetest.Connect(t, s, nativetest.Modern, nil)
	tools, err := cs.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range tools.Tools {
		data, err := json.Marshal(tool.InputSchema)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(data), "Asia/Tokyo") {
			t.Errorf("%s does not name the local timezone: %s", tool.Name, data)
		}
	}
	for _, bad := range []map[string]any{{"local_timezone": "Mars/Base"}, {"local_timezone": 3}, {"timezone": "UTC"}} {
		if _, err := New(bad); err == nil || !strings.Contains(err.Error(), "settings.") {
			t.Errorf("New(%v): err = %v", bad, err)
		}
	}
}

func TestSystemZone(t *testing.T) {
	t.Setenv("TZ", ":Europe/Paris")
	if got := systemZone(); got != "Europe/Paris" {
		t.Errorf("got %s", got)
	}
	t.Setenv("TZ", "Not/AZone")
	if _, err := zone(systemZone()); err != nil {
		t.Error(err)
	}
}

// TestSameAsReference makes the same calls to mcp-server-time.
func TestSameAsReference(t *testing.T) {
	ref := nativetest.ConnectReference(t, testkit.PyPI(t, "mcp-server-time", "--local-timezone", "Europe/Paris"), nil)
	s, err := New(map[string]any{"local_timezone": "Europe/Paris"})
	if err != nil {
		t.Fatal(err)
	}
	zones := []string{"UTC", "Europe/Paris", "Europe/Dublin", "Africa/Casablanca", "Asia/Kathmandu", "Australia/Lord_Howe",
		"America/St_Johns", "Pacific/Chatham", "Pacific/Apia", "America/Sao_Paulo", "Etc/GMT+12", "GMT", "EST", "US/Pacific", "Asia/Kolkata"}
	for _, era := range nativetest.Eras() {
		t.Run(era, func(t *testing.T) {
			cs := nativetest.Connect(t, s, era, nil)
			nativetest.SameTools(t, cs, ref)

			same := func(tool string, args map[string]any) {
				t.Helper()
				before, got, after := nativetest.Call(t, ref, tool, args), nativetest.Call(t, cs, tool, args), nativetest.Call(t, ref, tool, args)
				if got.IsError != before.IsError {
					t.Errorf("%s %v: isError %v, reference %v: %s", tool, args, got.IsError, before.IsError, nativetest.Text(before))
				}
				if before.IsError || got.IsError {
					return
				}
				// The clock may tick between the calls: then the answer lies between
				// the other two, which are written so that they sort by time.
				if nativetest.Text(before) != nativetest.Text(after) {
					if g := nativetest.Text(got); g < nativetest.Text(before) || g > nativetest.Text(after) {
						t.Errorf("%s %v: %s is not between %s and %s", tool, args, g, nativetest.Text(before), nativetest.Text(after))
					}
					return
				}
				nativetest.Same(t, tool+" content", got.Content, before.Content)
				nativetest.Same(t, tool+" structured", got.StructuredContent, before.StructuredContent)
			}
			for i, z := range zones {
				same("get_current_time", map[string]any{"timezone": z})
				next := zones[(i+1)%len(zones)]
				same("convert_time", map[string]any{"source_timezone": z, "time": "13:07", "target_timezone": next})
			}
			for _, bad := range []string{"", "Mars/Base", "../UTC", "Europe", "Local", "europe/paris", "posix/UTC"} {
				same("get_current_time", map[string]any{"timezone": bad})
			}
			for _, clock := range []string{"0:0", "9:5", "09:05", "23:59", "24:00", "1:60", "", "noon", "10:00:00", " 9:00", "-1:00"} {
				same("convert_time", map[string]any{"source_timezone": "UTC", "time": clock, "target_timezone": "Asia/Tokyo"})
			}
			same("get_current_time", map[string]any{})
			same("get_current_time", map[string]any{"timezone": 7})
			same("get_current_time", map[string]any{"timezone": "UTC", "extra": true})
		})
	}
}
