package main

import (
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
)

// TestServersTellAsMuchAsTheyAreTold checks what is printed of a failure: what a
// server wrote where the gateway says it, and the kind of an error without a message.
func TestServersTellAsMuchAsTheyAreTold(t *testing.T) {
	at := testNow.Add(-36 * time.Second)
	servers := []api.Server{
		{ID: "a", Enabled: true, State: api.StateReady, Since: at, LastError: &api.LastError{At: at, Kind: api.KindTimeout}},
		{ID: "b", Enabled: true, State: api.StateFailed, Since: at, Reason: "exited with status 3", Words: "no such table"},
	}
	f := world()
	f.servers = func() (any, *api.Error) { return api.ServerList{Servers: servers}, nil }
	f.server = func(id string) (any, *api.Error) { return &servers[strings.Index("ab", id)], nil }
	url := f.start(t)
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"servers"}, "36s ago: timeout"},
		{[]string{"servers"}, "exited with status 3; its last words: no such table"},
		{[]string{"servers", "show", "a"}, ", timeout\n"},
		{[]string{"servers", "show", "b"}, "exited with status 3; its last words: no such table"},
	} {
		tc := newTestCLI(t, tt.args...)
		tc.env["TINE_URL"] = url
		if code := tc.cli.run(t.Context()); code != 0 || !strings.Contains(tc.out.String(), tt.want) {
			t.Errorf("%v: exit status %d, without %q:\n%s%s", tt.args, code, tt.want, tc.out.String(), tc.err.String())
		}
	}
}
