package config

import (
	"maps"
	"strings"
	"testing"
)

func TestObserveErrors(t *testing.T) {
	testErrors(t, []wrongConfig{
		{"journal", "journal: none\n",
			`tine.yaml:1:10: journal: got "none", want full, meta or off, or a map of mode, max_age, max_size`},
		{"journal keys", "journal: {mode: all, max_age: 30s, max_size: 1000KiB}\n",
			`tine.yaml:1:17: journal.mode: got "all", want full, meta or off
tine.yaml:1:31: journal.max_age: "30s" is out of range; want 1m to 3650d
tine.yaml:1:46: journal.max_size: "1000KiB" is out of range; want 1MiB to 1024TiB`},
		{"ages", "journal: {max_age: 11y, max_size: 1PiB}\n",
			`tine.yaml:1:20: journal.max_age: "11y" is not a duration; write it like 500ms, 30s, 5m, 1h30m or 7d
tine.yaml:1:35: journal.max_size: "1PiB" is not a size; write it like 64KiB, 16MiB, 4MB or 65536`},
		{"old age", "journal: {max_age: 3651d}\n",
			`tine.yaml:1:20: journal.max_age: "3651d" is out of range; want 1m to 3650d`},
		{"endpoint", "telemetry: {otlp: {endpoint: 'localhost:4317', sample: 1.5}}\n",
			`tine.yaml:1:30: telemetry.otlp.endpoint: "localhost:4317" is not an absolute http or https URL; write it like http://127.0.0.1:4318
tine.yaml:1:56: telemetry.otlp.sample: 1.5 is out of range; want 0 to 1`},
		{"endpoint with a query", "telemetry: {otlp: {endpoint: 'http://x?token=a'}}\n",
			`tine.yaml:1:30: telemetry.otlp.endpoint: "http://x?token=****" has a query or a fragment, but paths are added to it; write it like http://127.0.0.1:4318`},
		{"headers", "telemetry: {otlp: {headers: {Host: x, 'a b': c}, sample: all}}\n",
			`tine.yaml:1:30: telemetry.otlp.headers: Host is set by Tine itself; remove it
tine.yaml:1:39: telemetry.otlp.headers: "a b" can't name a header
tine.yaml:1:58: telemetry.otlp.sample: got "all", want a number from 0 to 1`},
		{"keys", "telemetry: {endpoint: x}\n",
			`tine.yaml:1:13: unknown key "endpoint" in telemetry; known keys: otlp`},
	})
}

func TestJournalOfServers(t *testing.T) {
	for top, want := range map[string]string{"": "full", "journal: off\n": "off", "journal: {mode: meta}\n": "meta", "journal: meta\n": "meta", "journal:\n": "full"} {
		c := mustParse(t, top+"servers: {a: {builtin: time}, b: {builtin: time, journal: full}}\n",
			env(map[string]string{RemoteServersVar: `[{"id": "r", "endpoint": "http://x"}]`}))
		for id, mode := range map[string]string{"a": want, "b": "full", "r": want} {
			if got := serverOf(t, c, id).Journal; got != mode {
				t.Errorf("%q: %s has %s, want %s", top, id, got, mode)
			}
		}
	}
	c := mustParse(t, `{"mcpServers": {"a": {"command": "x"}, "bad": {}}}`, noEnv())
	for _, id := range []string{"a", "bad"} {
		if s := serverOf(t, c, id); s.Journal != "full" || s.Policy.Retry.Attempts != 3 || s.Credential != "shared" {
			t.Errorf("of another program: %+v", s)
		}
	}
}

func TestCollectorOfTheEnvironment(t *testing.T) {
	vars := map[string]string{
		otlpEndpointVar: " https://user:hunter2@otel.example.org/x ",
		otlpHeadersVar:  "X-Key=hunter2%2C, authorization=Basic%20aGk6aHVudGVyMg==,",
	}
	both := map[string]string{"X-Key": "hunter2,", "authorization": "Basic aGk6aHVudGVyMg=="}
	const fromEnv = "https://user:hunter2@otel.example.org/x"
	for _, tt := range []struct {
		in, endpoint string
		headers      map[string]string
	}{
		{"", fromEnv, both},
		{"telemetry: {otlp: {sample: 0.5}}", fromEnv, both},
		{"telemetry: {otlp: {endpoint: 'http://own'}}", "http://own", both},
		{"telemetry: {otlp: {endpoint: 'http://own', headers: {}}}", "http://own", nil},
		{"telemetry: {otlp: {headers: {A: b}}}", fromEnv, map[string]string{"A": "b"}},
		{"telemetry: {otlp: {endpoint: ''}}", "", nil},
		{`{"mcpServers": {}}`, fromEnv, both},
	} {
		c := mustParse(t, tt.in, env(vars))
		if got := c.Telemetry.OTLP; got.Endpoint != tt.endpoint || !maps.Equal(got.Headers, tt.headers) {
			t.Errorf("%s: %+v", tt.in, got)
		}
		if shown := string(Marshal(c)); strings.Contains(shown, "hunter2") || tt.endpoint == fromEnv && strings.Contains(shown, "otel.example.org") {
			t.Errorf("%s: shown\n%s", tt.in, shown)
		}
	}
	c, err := Load("", env(vars))
	if err != nil || c.Telemetry.OTLP.Endpoint != fromEnv {
		t.Errorf("without a file: %+v %v", c, err)
	}
}

// The variables belong to all programs: what Tine can't use is said, not shown,
// and stops nothing.
func TestCollectorThatCantBeUsed(t *testing.T) {
	for name, vars := range map[string]map[string]string{
		"endpoint": {otlpEndpointVar: "hunter2:4317"},
		"pairs":    {otlpEndpointVar: "http://x", otlpHeadersVar: "hunter2"},
		"encoding": {otlpEndpointVar: "http://x", otlpHeadersVar: "a=hunter2%zz"},
		"lines":    {otlpEndpointVar: "http://x", otlpHeadersVar: "a=hunter2%0a"},
		"own":      {otlpEndpointVar: "http://x", otlpHeadersVar: "host=hunter2"},
		"name":     {otlpEndpointVar: "http://x", otlpHeadersVar: "a b=hunter2"},
	} {
		c := mustParse(t, "servers: {time: {builtin: time}}", env(vars))
		if len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "OTEL_EXPORTER_OTLP_") || strings.Contains(c.Warnings[0], "hunter2") {
			t.Errorf("%s: %q", name, c.Warnings)
		}
		if o := c.Telemetry.OTLP; len(o.Headers) > 0 || name == "endpoint" && o.Endpoint != "" {
			t.Errorf("%s: %+v", name, o)
		}
	}
	c := mustParse(t, "servers: {time: {builtin: time}}", env(map[string]string{otlpHeadersVar: "nonsense"}))
	if len(c.Warnings) != 0 {
		t.Errorf("headers without a collector: %q", c.Warnings)
	}
}
