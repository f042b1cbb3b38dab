package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
)

// eventsOf is a gateway with events.
func eventsOf(all []api.Event, asked *[]string) *fakeGateway {
	f := world()
	f.events = func(w http.ResponseWriter, r *http.Request) {
		*asked = append(*asked, r.URL.RawQuery)
		enc := json.NewEncoder(w)
		enc.Encode(api.Event{ID: "0"})
		for i, e := range all {
			e.ID = fmt.Sprint(i + 1)
			enc.Encode(e)
			w.(http.Flusher).Flush() // each comes by itself
		}
	}
	return f
}

func TestEvents(t *testing.T) {
	at := testNow.Add(-time.Minute)
	call := api.Call{ID: "call_00000000002a", Server: "files", Method: "tools/call", Name: "read_file", Outcome: "timeout", Error: "no answer\nin time"}
	all := []api.Event{
		{Type: api.EventSessionOpened, At: at, Durable: true, Session: "ses_000000000001", Snapshot: "snap_1"},
		{Type: api.EventSessionSnapshot, At: at, Durable: true, Session: "ses_000000000001", Snapshot: "snap_2"},
		{Type: api.EventSessionRewound, At: at, Durable: true, Session: "ses_000000000001", Snapshot: "snap_2"},
		{Type: api.EventSessionForked, At: at, Durable: true, Session: "ses_000000000001", Children: []string{"ses_a", "ses_b", "ses_c", "ses_d", "ses_e"}},
		{Type: api.EventSessionDamaged, At: at, Durable: true, Session: "ses_a", Server: "git", Kept: "nothing", Reason: "exited"},
		{Type: api.EventCall, At: at, Durable: true, Session: "ses_a", Call: &call},
		{Type: api.EventServer, At: at, Server: "git", State: api.HealthFailing, Reason: "command not found"},
		{Type: api.EventRunState, At: at, Durable: true, Session: "ses_b", Run: "run_1", Agent: "poet", State: api.RunRunning},
		{Type: api.EventRunText, At: at, Durable: true, Session: "ses_b", Run: "run_1", Agent: "poet", Data: json.RawMessage(`{"text":"a\u001b[31mb"}`)},
		{Type: api.EventRunText, At: at, Durable: true, Session: "ses_b", Run: "run_1", Agent: "poet", Withheld: true},
		{Type: api.EventGap, Lost: api.LostCalls},
	}
	var asked []string
	url := eventsOf(all, &asked).start(t)
	out, stderr, code := run(t, url, "events", "--type", "session,call", "--type", "run")
	if code != 0 || stderr != "" {
		t.Errorf("exit %d, %q", code, stderr)
	}
	golden(t, "events", out)
	out, _, _ = run(t, url, "events", "--json", "--after", "7")
	if lines := strings.Split(strings.TrimSpace(out), "\n"); len(lines) != len(all) || !strings.HasPrefix(lines[0], `{"id":"1","type":"session.opened"`) {
		t.Errorf("printed %s", out)
	}
	if asked[0] != "follow=false&last=50&types=session%2Ccall%2Crun" || asked[1] != "after=7&follow=false" {
		t.Errorf("asked %q", asked)
	}
	_, stderr, code = run(t, eventsOf(nil, &asked).start(t), "events", "--limit", "3")
	if code != 0 || !strings.Contains(stderr, "no matching events") || asked[2] != "follow=false&last=3" {
		t.Errorf("of none: exit %d, %q, asked %q", code, stderr, asked[2])
	}
	for _, wrong := range [][]string{{"--limit", "0"}, {"--limit", "1001"}, {"--after", "x", "--limit", "3"}, {"more"}} {
		if _, stderr, code := run(t, url, append([]string{"events"}, wrong...)...); code != exitUsage || stderr == "" {
			t.Errorf("%q: exit %d, %q", wrong, code, stderr)
		}
	}
}
