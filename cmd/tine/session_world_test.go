package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tine-mcp/tine/api"
)

// fakeSessions are the sessions and snapshots of a fake gateway. Nothing that is
// asked of them changes them.
type fakeSessions struct {
	all    []api.Session // newest first
	snaps  []api.Snapshot
	opened atomic.Int64
	refuse func() bool // whether there is no room; nil for never
}

// routes adds what the control API has of them.
func (f *fakeSessions) routes(handle func(string, func(*http.Request) (any, *api.Error)), raw func(string, func(http.ResponseWriter, *http.Request))) {
	done := json.RawMessage(`{}`)
	handle("GET /v1/sessions", func(r *http.Request) (any, *api.Error) { return f.list(r.URL.Query()), nil })
	handle("POST /v1/sessions", withBody(func(r *http.Request, in api.NewSession) (any, *api.Error) { return f.open(r, in) }))
	handle("GET /v1/sessions/{id}", func(r *http.Request) (any, *api.Error) { return f.find(r.PathValue("id"), true) })
	handle("DELETE /v1/sessions/{id}", func(r *http.Request) (any, *api.Error) {
		_, e := f.find(r.PathValue("id"), true)
		return done, e
	})
	handle("POST /v1/sessions/{id}/forks", withBody(func(r *http.Request, in api.ForkRequest) (any, *api.Error) {
		return f.fork(r.PathValue("id"), in)
	}))
	handle("POST /v1/sessions/{id}/snapshots", withBody(func(r *http.Request, in api.SnapshotRequest) (any, *api.Error) {
		s, e := f.find(r.PathValue("id"), false)
		if e != nil {
			return nil, e
		}
		if in.Name == "base" {
			return nil, &api.Error{Kind: api.KindInvalid, Status: 409, Message: `there is a snapshot "base" already; delete it first, or choose another name`}
		}
		return api.Snapshot{ID: "snp_00000000000f", Name: in.Name, Owner: s.Owner, Session: s.ID, Labels: in.Labels, Created: testNow, Size: 5 << 20}, nil
	}))
	handle("GET /v1/sessions/{id}/snapshots", func(r *http.Request) (any, *api.Error) {
		s, e := f.find(r.PathValue("id"), true)
		if e != nil {
			return nil, e
		}
		return f.snapshots(func(snap api.Snapshot) bool { return snap.Session == s.ID }), nil
	})
	handle("POST /v1/sessions/{id}/token", func(r *http.Request) (any, *api.Error) {
		s, e := f.find(r.PathValue("id"), false)
		if e != nil {
			return nil, e
		}
		return api.OpenedSession{Session: *s, Token: "tine_ses_another"}, nil
	})
	further := api.SessionToken{ID: "tok_000000000001", Session: "ses_0a0000000001", Run: "review", Servers: []string{"files"}, Created: testNow.Add(-time.Minute), Expires: testNow.Add(time.Hour)}
	handle("POST /v1/sessions/{id}/tokens", withBody(func(r *http.Request, in api.NewSessionToken) (any, *api.Error) {
		s, e := f.find(r.PathValue("id"), false)
		if e != nil {
			return nil, e
		}
		t := api.SessionToken{ID: "tok_000000000003", Session: s.ID, Run: in.Run, Servers: in.Servers, Allow: in.Allow, Created: testNow}
		if in.TTL != "0s" {
			t.Expires = testNow.Add(24 * time.Hour)
		}
		return api.MintedToken{SessionToken: t, Token: "tine_ses_further"}, nil
	}))
	handle("GET /v1/sessions/{id}/tokens", func(r *http.Request) (any, *api.Error) {
		s, e := f.find(r.PathValue("id"), false)
		if e != nil || s.ID != further.Session {
			return api.SessionTokenList{Tokens: []api.SessionToken{}}, e
		}
		return api.SessionTokenList{Tokens: []api.SessionToken{further, {ID: "tok_000000000002", Session: s.ID, Allow: []string{"fork", "rewind"}, Created: testNow}, {ID: "tok_000000000003", Session: s.ID, Run: "idle", Servers: []string{}, Created: testNow}}}, nil
	})
	handle("DELETE /v1/sessions/{id}/tokens", func(r *http.Request) (any, *api.Error) {
		if r.URL.Query().Get("run") == further.Run {
			return api.RevokedTokens{Revoked: 2}, nil
		}
		return api.RevokedTokens{}, nil
	})
	handle("DELETE /v1/sessions/{id}/tokens/{token}", func(r *http.Request) (any, *api.Error) {
		if r.PathValue("token") == further.ID {
			return nil, nil
		}
		return nil, &api.Error{Kind: api.KindInvalid, Status: 404, Message: "session ses_0a0000000001 has no token tok_x; it may have expired"}
	})
	handle("POST /v1/sessions/{id}/rewind", withBody(func(r *http.Request, in api.RewindRequest) (any, *api.Error) {
		s, e := f.find(r.PathValue("id"), false)
		if e == nil {
			_, e = f.snapshot(in.Snapshot)
		}
		return s, e
	}))
	handle("GET /v1/sessions/{id}/calls", func(r *http.Request) (any, *api.Error) {
		if _, e := f.find(r.PathValue("id"), true); e != nil {
			return nil, e
		}
		return api.CallList{Calls: []api.Call{
			{ID: "call_0005", Method: "tools/call"}, {ID: "call_0004", Method: "tools/call"}, {ID: "call_0003", Method: "tools/list"}, {ID: "call_0001", Method: "tools/call"},
		}}, nil
	})
	handle("POST /v1/sessions/{id}/annotations", withBody(func(r *http.Request, in api.NewAnnotation) (any, *api.Error) {
		s, e := f.find(r.PathValue("id"), true)
		if e != nil {
			return nil, e
		}
		if in.Call == "nope" {
			return nil, &api.Error{Kind: api.KindInvalid, Status: 400, Message: `call "nope" is no id of a call`}
		}
		return api.Annotation{ID: "call_0009", At: testNow, Session: s.ID, Call: in.Call, Reward: in.Reward}, nil
	}))
	handle("GET /v1/sessions/{id}/tree", func(r *http.Request) (any, *api.Error) {
		s, e := f.find(r.PathValue("id"), true)
		for e == nil && s.Parent != "" {
			s, e = f.find(s.Parent, true)
		}
		if e != nil {
			return nil, e
		}
		return f.tree(*s), nil
	})
	raw("GET /v1/sessions/{id}/trajectory", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, `{"type":"session","session":"`+r.PathValue("id")+`","at":"2026-11-15T11:00:00Z","step":0}`)
		fmt.Fprintln(w, `{"type":"call","session":"`+r.PathValue("id")+`","at":"2026-11-15T11:00:01Z","step":1,"arguments":{"n":12345678901234567890,"t":"<b>"},"outcome":"ok"}`)
	})
	raw("GET /v1/trajectories", func(w http.ResponseWriter, r *http.Request) {
		all := f.list(r.URL.Query()).Sessions
		for _, s := range all {
			fmt.Fprintln(w, `{"type":"session","session":"`+s.ID+`","at":"2026-11-15T11:00:00Z","step":0,"of":"`+s.ID+`"}`)
		}
		if r.URL.Query().Get("owner") != "broken" {
			fmt.Fprintf(w, `{"type":"end","step":0,"sessions":%d}`+"\n", len(all))
		}
	})
	handle("GET /v1/snapshots", func(r *http.Request) (any, *api.Error) {
		auto := r.URL.Query().Get("auto") == "true"
		return f.snapshots(func(s api.Snapshot) bool { return auto || !s.Auto }), nil
	})
	handle("GET /v1/snapshots/{ref}", func(r *http.Request) (any, *api.Error) { return f.snapshot(r.PathValue("ref")) })
	handle("DELETE /v1/snapshots/{ref}", func(r *http.Request) (any, *api.Error) {
		_, e := f.snapshot(r.PathValue("ref"))
		return done, e
	})
	raw("GET /v1/snapshots/{ref}/export", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Disposition", `attachment; filename="base.tine"`)
		io.WriteString(w, "frozen\n")
	})
	handle("POST /v1/snapshots/import", func(r *http.Request) (any, *api.Error) {
		body, err := io.ReadAll(r.Body)
		if err != nil || string(body) != "frozen\n" {
			return nil, &api.Error{Kind: api.KindInvalid, Status: 400, Message: "the file is no snapshot that was exported"}
		}
		return api.Snapshot{ID: "snp_00000000000e", Name: r.URL.Query().Get("name"), Session: "ses_ee0000000000", Created: testNow, Size: 7}, nil
	})
}

func (f *fakeSessions) list(q url.Values) api.SessionList {
	out := api.SessionList{Sessions: []api.Session{}}
	limit, _ := strconv.Atoi(q.Get("limit"))
	past := q.Get("after") == ""
	for _, s := range f.all {
		s.Members, s.Workspace = nil, nil
		fits := past && (s.Closed.IsZero() || q.Get("closed") == "true") && (q.Get("owner") == "" || q.Get("owner") == s.Owner) &&
			!slices.ContainsFunc(q["label"], func(l string) bool { k, v, _ := strings.Cut(l, "="); return s.Labels[k] != v })
		past = past || s.ID == q.Get("after")
		if !fits {
			continue
		}
		if out.Sessions = append(out.Sessions, s); len(out.Sessions) == min(limit, 2) { // a page holds two
			out.Next = s.ID
			break
		}
	}
	return out
}

func (f *fakeSessions) find(id string, closed bool) (*api.Session, *api.Error) {
	for _, s := range f.all {
		switch {
		case s.ID != id && (s.Name != id || !s.Closed.IsZero()):
		case closed || s.Closed.IsZero():
			return &s, nil
		default:
			return nil, &api.Error{Kind: api.KindInvalid, Status: http.StatusGone, Message: "session " + id + " was closed at " + s.Closed.Format(time.RFC3339) + ": " + s.Reason}
		}
	}
	return nil, &api.Error{Kind: api.KindInvalid, Status: http.StatusNotFound, Message: "there is no session " + id + " of yours"}
}

func (f *fakeSessions) next(s api.Session) api.OpenedSession {
	s.ID = fmt.Sprintf("ses_1e%010x", f.opened.Add(1))
	s.Kind, s.Owner, s.Created, s.Used = api.SessionOpened, "alice", testNow, testNow
	s.URL, s.Idle = "http://127.0.0.1:8463/s/"+s.ID+"/mcp", "24h0m0s"
	return api.OpenedSession{Session: s, Token: "tine_" + s.ID[4:]}
}

func (f *fakeSessions) open(r *http.Request, in api.NewSession) (any, *api.Error) {
	switch {
	case r.Header.Get("Idempotency-Key") == "":
		return nil, &api.Error{Kind: api.KindInvalid, Status: 400, Message: "the test wants a key"}
	case in.Labels["no key"] != "":
		return nil, &api.Error{Kind: api.KindInvalid, Status: 400, Message: `labels: key "no key" must be 1 to 128 letters, digits, dots, dashes, underscores and slashes`}
	case in.Labels["run"] == "full" || f.refuse != nil && f.refuse():
		return nil, &api.Error{Kind: api.KindRefused, Status: 429, Retryable: true, RetryAfter: 5, Message: "there is no room for another session: 2000 of 2000 are open"}
	case slices.Contains(in.Servers, "git"):
		return nil, &api.Error{Kind: api.KindInfrastructure, Status: 502, Server: "git", Message: `server "git": command "uvx" not found on PATH; install uv`}
	}
	s := f.next(api.Session{Labels: in.Labels, From: in.From})
	if in.TTL == "2h0m0s" {
		s.Expires = testNow.Add(2 * time.Hour)
	}
	if in.Idle == "0s" {
		s.Idle = ""
	}
	return s, nil
}

func (f *fakeSessions) fork(id string, in api.ForkRequest) (any, *api.Error) {
	s, e := f.find(id, false)
	switch {
	case e != nil:
		return nil, e
	case in.Wait == "1ms":
		return nil, &api.Error{Kind: api.KindTimeout, Status: 504, Retryable: true, Message: "session " + id + " has 1 call under way that did not end in 1ms: files__read_file"}
	}
	out := api.Forks{Parent: s.ID, Call: "call_0005", Paused: 1.26}
	for range in.Count {
		out.Sessions = append(out.Sessions, f.next(api.Session{Parent: s.ID, Depth: s.Depth + 1, Labels: in.Labels}))
	}
	return out, nil
}

func (f *fakeSessions) tree(s api.Session) api.Tree {
	s.Members, s.Workspace = nil, nil
	t := api.Tree{Session: s}
	for _, child := range slices.Backward(f.all) {
		if child.Parent == s.ID {
			t.Children = append(t.Children, f.tree(child))
		}
	}
	return t
}

func (f *fakeSessions) snapshots(want func(api.Snapshot) bool) api.SnapshotList {
	out := api.SnapshotList{Snapshots: []api.Snapshot{}}
	for _, s := range f.snaps {
		if want(s) {
			out.Snapshots = append(out.Snapshots, s)
		}
	}
	return out
}

func (f *fakeSessions) snapshot(ref string) (*api.Snapshot, *api.Error) {
	for _, s := range f.snaps {
		if s.ID == ref || s.Name == ref && ref != "" {
			return &s, nil
		}
	}
	return nil, &api.Error{Kind: api.KindInvalid, Status: http.StatusNotFound, Message: "there is no snapshot " + ref + " of yours"}
}

// withNames adds sessions that have names, one of which an id begins with, and that of a
// connection.
func (f *fakeGateway) withNames() *fakeGateway {
	f.sessions.all = append([]api.Session{
		{ID: "ses_0f0000000007", Kind: api.SessionNamed, Name: "work", Owner: "bob", Created: testNow, Used: testNow},
		{ID: "ses_0f1000000008", Kind: api.SessionNamed, Name: "0a", Owner: "bob", Created: testNow, Used: testNow},
		{ID: "ses_0f2000000009", Kind: api.SessionClient, Owner: "bob", Idle: "1h0m0s", Created: testNow, Used: testNow, Members: []api.Member{
			{Server: "memory", Driver: "builtin", Scope: "session", State: api.StateReady, Fork: "refuse", Why: "it keeps its state in the default session ses_0d0000000005"},
		}},
	}, f.sessions.all...)
	return f
}

// withSessions gives the gateway a family of four, one of whom is closed, and a
// default session.
func (f *fakeGateway) withSessions(ago func(time.Duration) time.Time) {
	at := func(id string) string { return "http://127.0.0.1:8463/s/" + id + "/mcp" }
	f.sessions = &fakeSessions{
		all: []api.Session{
			{ID: "ses_0d0000000005", Kind: api.SessionDefault, Name: "default", Owner: "bob", Created: ago(time.Minute), Used: ago(time.Second), URL: at("ses_0d0000000005")},
			{ID: "ses_0c0000000004", Kind: api.SessionOpened, Owner: "alice", Parent: "ses_0a0000000001", Depth: 1, Labels: map[string]string{"try": "b", "run": "7"}, Created: ago(10 * time.Minute), Used: ago(9 * time.Minute), Calls: 3, URL: at("ses_0c0000000004")},
			{ID: "ses_0b1100000003", Kind: api.SessionOpened, Owner: "alice", Parent: "ses_0b0000000002", Depth: 2, Created: ago(50 * time.Minute), Used: ago(40 * time.Minute), Closed: ago(5 * time.Minute), Reason: "unused for 30m"},
			{ID: "ses_0b0000000002", Kind: api.SessionOpened, Owner: "alice", Parent: "ses_0a0000000001", Depth: 1, Labels: map[string]string{"run": "7", "note": "a \x1b[2J"}, Created: ago(time.Hour), Used: ago(50 * time.Minute), URL: at("ses_0b0000000002")},
			{ID: "ses_0a0000000001", Kind: api.SessionOpened, Owner: "alice", From: "snp_0000000000a1", Labels: map[string]string{"run": "7"}, Created: ago(2 * time.Hour), Used: ago(time.Minute), Expires: ago(-22 * time.Hour), Idle: "30m0s", Calls: 12, InFlight: 1, URL: at("ses_0a0000000001"),
				Workspace: &api.Workspace{Kind: "tree", Path: "/workspace"},
				Members: []api.Member{
					{Server: "files", Driver: "builtin", Scope: "session", State: api.StateReady, Instance: true, Fork: "files"},
					{Server: "git", Driver: "process", Scope: "session", State: api.StateFailed, Reason: `command "uvx" not found on PATH`, Fork: "refuse", Why: `what server "git" remembers is not known; name its directories with servers.git.state`},
					{Server: "shell", Driver: "docker", Scope: "session", State: api.StateReady, Instance: true, Process: &api.Process{Container: "5f0e1d2c3b4a59687766", Image: "shell:1"}, Fork: "files"},
					{Server: "tests", Driver: "process", Scope: "session", State: api.StateReady, Instance: true, Process: &api.Process{PID: 4711}, Fork: "files"},
					{Server: "time", Driver: "builtin", Scope: "shared", State: api.StateIdle, Fork: "share"},
				}},
		},
		snaps: []api.Snapshot{
			{ID: "snp_0000000000b2", Owner: "alice", Session: "ses_0a0000000001", Created: ago(2 * time.Minute), Auto: true, Size: 1536, Call: "call_0003"},
			{ID: "snp_0000000000a1", Name: "base", Owner: "alice", Session: "ses_0a0000000001", Labels: map[string]string{"kind": "seed"}, Created: ago(26 * time.Hour), Size: 3 << 30, Call: "call_0001"},
			{ID: "snp_00000000c003", Name: "other", Owner: "bob", Created: ago(72 * time.Hour), Size: 12},
		},
	}
}
