//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
)

// tineError is what a failed call says about whose failure it is; nil where the
// failure is the tool's own.
func (r toolResult) tineError(t testing.TB) *api.Error {
	t.Helper()
	raw, ok := r.Meta["tine/error"]
	if !ok {
		return nil
	}
	var e api.Error
	if err := json.Unmarshal(raw, &e); err != nil {
		t.Fatalf("tine/error %s: %v", raw, err)
	}
	return &e
}

// badServers renders the whole zoo, each over stdio and over HTTP, with two
// good ones among them.
func badServers(t *testing.T) string {
	listen := func(mode string) string {
		addr := serve(t, badServer, func(addr string) []string { return []string{"-mode", mode, "-http", addr} })
		return "http://" + addr + "/mcp"
	}
	var b strings.Builder
	b.WriteString("limits:\n  list_wait: 2s\nservers:\n")
	b.WriteString("  dead_http:\n    url: http://127.0.0.1:1/mcp\n    connect_timeout: 5s\n")
	b.WriteString(yamlServer("dead", badServer, []string{"-mode", "dead"}, "connect_timeout: 5s"))
	for _, mode := range []string{"hang", "hangcall", "flap", "garbage", "hugelist", "many", "good"} {
		limits := []string{"connect_timeout: 5s", "timeout: 30s"}
		if mode == "hangcall" {
			limits[1] = "timeout: 1s"
		}
		if mode == "hang" {
			limits[0] = "connect_timeout: 1s"
		}
		fmt.Fprintf(&b, "  %s_http:\n    url: %s\n    %s\n", mode, listen(mode), strings.Join(limits, "\n    "))
		b.WriteString(yamlServer(mode, badServer, []string{"-mode", mode}, limits...))
	}
	return b.String()
}

// TestBadServers holds that one bad server is one bad server: the rest is listed
// and answers, and what fails says which server it was and why.
func TestBadServers(t *testing.T) {
	t.Parallel()
	g := startGateway(t, badServers(t))
	s := mustOpen(t, g.url+"/mcp")

	// The good ones are called all the while, each call with a text of its own.
	ctx, cancel := context.WithCancel(t.Context())
	steady := make(chan error, 2)
	for _, server := range []string{"good", "good_http"} {
		go func() {
			mine, err := open(ctx, g.url+"/mcp", nil)
			for n := 0; err == nil && ctx.Err() == nil; n++ {
				word := fmt.Sprintf("%s %d", server, n)
				var r toolResult
				if r, err = mine.call(ctx, server+"__echo", map[string]any{"text": word}); err == nil && (r.IsError || r.text() != word) {
					err = fmt.Errorf("%s answers %q to %q", server, r.text(), word)
				}
				time.Sleep(10 * time.Millisecond) // other tests want the processor too
			}
			if ctx.Err() != nil {
				err = nil
			}
			steady <- err
		}()
	}

	t.Run("list", func(t *testing.T) {
		var names []string
		if err := eventually(func() (err error) {
			if names, err = s.tools(t.Context()); err != nil {
				return final{err}
			}
			for _, want := range []string{"good__echo", "good_http__echo", "many__tool_499", "many_http__tool_499", "flap__echo", "hangcall__echo"} {
				if !slices.Contains(names, want) {
					return fmt.Errorf("%s is not among %d tools", want, len(names))
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		count := map[string]int{}
		for _, name := range names {
			server, _, _ := strings.Cut(name, "__")
			count[server]++
		}
		for _, server := range []string{"many", "many_http"} {
			if count[server] != 500 {
				t.Errorf("%s has %d tools, want 500", server, count[server])
			}
		}
		for _, server := range []string{"dead", "dead_http", "hang", "hang_http", "garbage", "garbage_http", "hugelist", "hugelist_http"} {
			if count[server] != 0 {
				t.Errorf("%s has %d tools, want none", server, count[server])
			}
		}
		again, err := s.tools(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(slices.Sorted(slices.Values(names)), slices.Sorted(slices.Values(again))) {
			t.Errorf("a second list has other tools: %d, then %d", len(names), len(again))
		}
	})

	for _, tt := range []struct {
		tool string
		kind api.Kind
		why  string // pattern
	}{
		{"dead__echo", api.KindInfrastructure, `licence has expired|exit`},
		{"dead_http__echo", api.KindInfrastructure, `refused`},
		{"hang__echo", "", `within|in time|timed? ?out|did not answer`},
		{"hang_http__echo", "", `within|in time|timed? ?out|did not answer`},
		{"hangcall__echo", api.KindTimeout, `within|in time|timed? ?out|did not answer`},
		{"hangcall_http__echo", api.KindTimeout, `within|in time|timed? ?out|did not answer`},
		{"garbage__echo", "", `JSON|understand|within|in time|did not answer`},
		{"garbage_http__echo", api.KindInfrastructure, `JSON|understand`},
		{"good__huge", api.KindInfrastructure, `limit`},
		{"good_http__huge", api.KindInfrastructure, `limit`},
	} {
		t.Run(tt.tool, func(t *testing.T) {
			t.Parallel()
			mine := mustOpen(t, g.url+"/mcp")
			r, err := mine.call(t.Context(), tt.tool, map[string]any{"text": "anyone?"})
			if err != nil {
				t.Fatal(err)
			}
			e := r.tineError(t)
			if !r.IsError || e == nil {
				t.Fatalf("the call answers %.200q, want an error of Tine's", r.text())
			}
			server, _, _ := strings.Cut(tt.tool, "__")
			if e.Server != server || !strings.Contains(r.text(), server) {
				t.Errorf("%q (server %q) does not name %s", r.text(), e.Server, server)
			}
			if !regexp.MustCompile(tt.why).MatchString(r.text()) {
				t.Errorf("%q does not say why: want %s", r.text(), tt.why)
			}
			if tt.kind != "" && e.Kind != tt.kind {
				t.Errorf("kind %q, want %q: %s", e.Kind, tt.kind, r.text())
			}
		})
	}

	for _, server := range []string{"flap", "flap_http"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			mine := mustOpen(t, g.url+"/mcp")
			// It fails at some calls and comes back each time.
			worked, failed := 0, 0
			if err := eventually(func() error {
				r, err := mine.call(t.Context(), server+"__echo", map[string]any{"text": "still there?"})
				switch {
				case err != nil:
					return final{err}
				case !r.IsError && r.text() == "still there?":
					worked++
				case r.tineError(t) != nil && r.tineError(t).Server == server:
					failed++
				default:
					return final{fmt.Errorf("the call answers %.200q", r.text())}
				}
				if worked < 3 || failed < 2 {
					return fmt.Errorf("%d calls worked, %d failed", worked, failed)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}

	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-steady; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestServerStates holds that the control API says what is wrong with a server.
func TestServerStates(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "servers:\n  dead_http:\n    url: http://127.0.0.1:1/mcp\n    eager: true\n"+
		yamlServer("good", badServer, []string{"-mode", "good"}, "scope: shared", "eager: true"))
	if err := eventually(func() error {
		out, err := g.tine(t.Context(), "servers", "--json")
		if err != nil {
			return final{err}
		}
		var list api.ServerList
		if err := json.Unmarshal([]byte(out), &list); err != nil {
			return final{fmt.Errorf("%w in %s", err, out)}
		}
		for _, s := range list.Servers {
			switch {
			case s.ID == "good" && s.State != api.StateReady:
				return fmt.Errorf("good is %s: %s", s.State, s.Reason)
			case s.ID == "dead_http" && (s.State != api.StateFailed || !strings.Contains(s.Reason, "refused")):
				return fmt.Errorf("dead_http is %s: %s", s.State, s.Reason)
			}
		}
		if len(list.Servers) != 2 {
			return fmt.Errorf("%d servers", len(list.Servers))
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
