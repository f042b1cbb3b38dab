package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// do calls a tool as the gateway does: through the session's gate, and once more
// when the server was replaced meanwhile. Arguments come as names and values.
func do(ctx context.Context, t *testing.T, s *session.Session, server, tool string, args ...string) string {
	t.Helper()
	kv := map[string]string{}
	for i := 0; i+1 < len(args); i += 2 {
		kv[args[i]] = args[i+1]
	}
	raw, err := json.Marshal(map[string]any{"name": tool, "arguments": kv})
	if err != nil {
		t.Fatal(err)
	}
	answer := func() (*upstream.Result, error) {
		up, _, err := s.Upstream(server)
		if err != nil {
			return nil, err
		}
		ctx, leave, err := s.Enter(ctx, server, tool)
		if err != nil {
			return nil, err
		}
		defer leave()
		p, err := wire.ScanParams(wire.MethodCallTool, raw)
		if err != nil {
			return nil, err
		}
		req := &upstream.Request{
			Method: wire.MethodCallTool, Params: p, Name: tool, Session: s.ID, Who: s.Owner, Client: &upstream.Client{Key: "k"},
		}
		res, err := up.Call(ctx, req)
		if upstream.IsClosed(err) {
			if up, _, err = s.Upstream(server); err == nil {
				res, err = up.Call(ctx, req)
			}
		}
		return res, err
	}
	res, err := answer()
	if err == nil {
		return string(res.Result) + string(res.Error)
	}
	return failure(err)
}

// failure is an error as "kind: message".
func failure(err error) string {
	var fail *api.Error
	switch {
	case err == nil:
		return "no error"
	case errors.As(err, &fail):
		return string(fail.Kind) + ": " + fail.Message
	}
	return "plain: " + err.Error()
}

// set lets a server remember something; dump is all it remembers.
func set(t *testing.T, s *session.Session, server, k, v string) {
	t.Helper()
	if got := do(context.Background(), t, s, server, "set", "k", k, "v", v); got != `"ok"` {
		t.Fatalf("set in %s of %s: %s", server, s.ID, got)
	}
}

func dump(t *testing.T, s *session.Session, server string) string {
	t.Helper()
	return do(context.Background(), t, s, server, "dump")
}

func wantDump(t *testing.T, what string, s *session.Session, server, want string) {
	t.Helper()
	if s == nil {
		t.Errorf("%s: there is no session", what)
		return
	}
	if got := dump(t, s, server); got != want {
		t.Errorf("%s: %s remembers %s, want %s", what, server, got, want)
	}
}

// opened opens a session.
func (w *world) opened(o session.OpenOptions) *session.Session {
	w.t.Helper()
	s, token, err := w.OpenSession(context.Background(), o)
	if err != nil {
		w.t.Fatal(failure(err))
	}
	if token == "" {
		w.t.Error("it has no token")
	}
	return s
}

func (w *world) fork(s *session.Session, count int) []*session.Session {
	w.t.Helper()
	f, err := w.Fork(context.Background(), s, session.ForkOptions{Count: count})
	if err != nil {
		w.t.Fatal(failure(err))
	}
	return f.Children
}

func (w *world) frozen(s *session.Session, name string) api.Snapshot {
	w.t.Helper()
	snap, err := w.Freeze(context.Background(), s, session.SnapshotOptions{Name: name})
	if err != nil {
		w.t.Fatal(failure(err))
	}
	return snap
}

// remember lets every member of a session that can remember something, and its
// workspace; remembers sees whether they do.
func (w *world) remember(s *session.Session, what string) {
	w.t.Helper()
	for _, m := range w.Describe(s, true).Members {
		switch m.Server {
		case "own", "mem", "both":
			set(w.t, s, m.Server, "it", what)
		case "tree":
			if got := do(context.Background(), w.t, s, "tree", "write", "path", "it", "text", what); got != `"ok"` {
				w.t.Fatal(got)
			}
		}
	}
}

func (w *world) remembers(whose string, s *session.Session, what string) {
	w.t.Helper()
	if s == nil {
		w.t.Errorf("%s is gone", whose)
		return
	}
	for _, m := range w.Describe(s, true).Members {
		switch m.Server {
		case "own", "mem", "both":
			want := `{"it":"` + what + `"}`
			if what == "" {
				want = `{}`
			}
			wantDump(w.t, whose, s, m.Server, want)
		case "tree":
			want := `"` + what + `"`
			if what == "" {
				want = `"nothing"`
			}
			if got := do(context.Background(), w.t, s, "tree", "read", "path", "it"); got != want {
				w.t.Errorf("%s: the file has %s, want %s", whose, got, want)
			}
		}
	}
}
