package rollout

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/native/nativetest"
	"github.com/tine-mcp/tine/internal/native/rollout/rollouttest"
	"github.com/tine-mcp/tine/internal/wire"
)

// fake is Sessions whose members remember words, and nothing else.
type fake struct {
	mu       sync.Mutex
	servers  []api.Server
	shared   *words
	sessions map[string]*fakeSession
	keys     map[string]fakeMade
	callers  map[string]*fakeCaller
}

type words struct{ all []string }

type fakeSession struct {
	api.Session
	token   string
	members map[string]*words
}

type fakeMade struct {
	request string
	answer  any
}

type fakeCaller struct{ name, token, header, own, uses string }

func newFake() *fake {
	f := &fake{shared: &words{}, sessions: map[string]*fakeSession{}, keys: map[string]fakeMade{}, callers: map[string]*fakeCaller{}}
	for _, id := range []string{"notes", "files", "all", "bad", "worse"} {
		f.servers = append(f.servers, api.Server{ID: id, Driver: "builtin", Scope: "session", Enabled: true})
	}
	f.servers[2].Scope = "shared"
	return f
}

func (f *fake) make(owner, kind string) *fakeSession {
	id := fmt.Sprintf("ses_%012d", len(f.sessions)+1)
	s := &fakeSession{Session: api.Session{ID: id, Owner: owner, Kind: kind, Created: time.Unix(1, 0), URL: "http://x/s/" + id + "/mcp"}, token: "t-" + id, members: map[string]*words{}}
	f.sessions[id] = s
	return s
}

// usable finds a session for a caller.
func (f *fake) usable(caller, id string) (*fakeSession, error) {
	c, s := f.callers[caller], f.sessions[id]
	if s == nil || c.token != "" && c.token != s.token || c.token == "" && c.name != s.Owner {
		return nil, &api.Error{Kind: api.KindInvalid, Status: http.StatusNotFound, Message: "there is no session " + id + " of yours"}
	}
	return s, nil
}

func (f *fake) openOne(caller, id string) (*fakeSession, error) {
	s, err := f.usable(caller, id)
	if err == nil && !s.Closed.IsZero() {
		err = invalid("session %s was closed", id)
	}
	return s, err
}

func once[A any](f *fake, key string, request any, make func() (A, error)) (out A, err error) {
	text, err := json.Marshal(request)
	if err != nil {
		return out, err
	}
	if strings.Contains(key, " ") {
		return out, invalid("Idempotency-Key must be other")
	}
	if was, ok := f.keys[key]; ok && key != "" {
		if was.request != string(text) {
			return out, invalid("the Idempotency-Key was used for another request")
		}
		return was.answer.(A), nil
	}
	if out, err = make(); err == nil {
		f.keys[key] = fakeMade{string(text), out}
	}
	return out, err
}

func (f *fake) Open(_ context.Context, caller, key string, in api.NewSession) (api.OpenedSession, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.callers[caller]
	if c.token != "" {
		return api.OpenedSession{}, &api.Error{Kind: api.KindRefused, Message: "the token is that of " + c.token}
	}
	return once(f, key, in, func() (api.OpenedSession, error) {
		if !in.Eager {
			return api.OpenedSession{}, invalid("nothing would be started")
		}
		var failed []*api.Error
		for _, id := range in.Servers {
			m := in.Members[id]
			switch {
			case id == "bad" || id == "worse":
				failed = append(failed, &api.Error{Kind: api.KindInfrastructure, Server: id, Message: id + " does not start"})
			case m.Instances > 1000:
				return api.OpenedSession{}, invalid("at most 1000")
			case id == "all" && m.Instances > 1:
				return api.OpenedSession{}, invalid("all sessions share it")
			case m.Template != nil && m.Template[0] != '"':
				return api.OpenedSession{}, invalid("a template must be a string")
			case m.Template != nil:
				return api.OpenedSession{}, invalid("there is no template %s", m.Template)
			}
		}
		if failed != nil {
			return api.OpenedSession{}, &api.Error{Kind: api.KindInfrastructure, Message: "bad and worse failed", Causes: failed}
		}
		s := f.make(c.name, api.SessionOpened)
		for _, id := range in.Servers {
			for n := range max(1, in.Members[id].Instances) {
				name, has := id, &words{}
				if n > 0 {
					name = fmt.Sprintf("%s~%d", id, n)
				}
				if id == "all" {
					has = f.shared
				}
				s.members[name] = has
				s.Members = append(s.Members, api.Member{Server: name, Ordinal: n, Driver: "builtin", Scope: find(f.servers, id).Scope, Fork: "memory"})
			}
		}
		return api.OpenedSession{Session: s.Session, Token: s.token}, nil
	})
}

func (f *fake) Fork(_ context.Context, caller, session, key string, in api.ForkRequest) (api.Forks, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return once(f, key, in, func() (api.Forks, error) {
		parent, err := f.openOne(caller, session)
		if err != nil {
			return api.Forks{}, err
		}
		s := f.make(parent.Owner, api.SessionOpened)
		return api.Forks{Parent: session, Sessions: []api.OpenedSession{{Session: s.Session, Token: s.token}}}, nil
	})
}

func (f *fake) Snapshot(context.Context, string, string, api.SnapshotRequest) (api.Snapshot, error) {
	return api.Snapshot{}, invalid("nothing is frozen here")
}

func (f *fake) Rewind(context.Context, string, string, api.RewindRequest) (api.Session, error) {
	return api.Session{}, invalid("nothing is rewound here")
}

func (f *fake) Close(_ context.Context, caller, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.usable(caller, id)
	if err == nil {
		s.Closed = time.Unix(2, 0)
	}
	return err
}

func (f *fake) List(_ context.Context, caller, _ string, _ map[string]string, _ int, _ string) (api.SessionList, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := api.SessionList{Sessions: []api.Session{}}
	for _, s := range f.sessions {
		if s.Owner == f.callers[caller].name && s.Closed.IsZero() {
			out.Sessions = append(out.Sessions, s.Session)
		}
	}
	return out, nil
}

func (f *fake) Servers(context.Context, string) ([]api.Server, error) { return f.servers, nil }

func (f *fake) Which(_ context.Context, caller, named string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.callers[caller]
	if c.token != "" && named == "" {
		for _, s := range f.sessions {
			if s.token == c.token {
				return s.ID, nil
			}
		}
	}
	return cmp.Or(named, c.header, c.uses), nil
}

func (f *fake) Use(_ context.Context, caller, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.callers[caller].uses = id
	return nil
}

func (f *fake) Show(_ context.Context, caller, id string) (api.Session, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.usable(caller, cmp.Or(id, f.callers[caller].own))
	if err != nil {
		return api.Session{}, err
	}
	return s.Session, nil
}

func (f *fake) member(caller, id, member string) (*words, error) {
	s, err := f.openOne(caller, id)
	if err != nil {
		return nil, err
	}
	m := s.members[strings.TrimSuffix(member, "~0")]
	if m == nil {
		return nil, invalid("session %s has no server %s; it has %s", id, member, strings.Join(slices.Sorted(maps.Keys(s.members)), ", "))
	}
	return m, nil
}

func (f *fake) Call(_ context.Context, caller, id, member, tool string, args json.RawMessage) (json.RawMessage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, err := f.member(caller, id, member)
	if err != nil {
		return nil, err
	}
	switch tool {
	case "put":
		var in struct{ Word string }
		if err := json.Unmarshal(args, &in); err != nil {
			return nil, invalid("%v", err)
		}
		m.all = append(m.all, in.Word)
	case "get":
	default:
		return json.RawMessage(fmt.Sprintf(`{"content":[{"type":"text","text":"MCP error -32602: Tool %s not found"}],"isError":true}`, tool)), nil
	}
	return json.RawMessage(fmt.Sprintf(`{"content":[{"type":"text","text":%q}]}`, strings.Join(m.all, " "))), nil
}

func (f *fake) Tools(_ context.Context, caller, id, member string) (json.RawMessage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err := f.member(caller, id, member)
	return json.RawMessage(`{"tools":[{"name":"put"},{"name":"get"}]}`), err
}

// dial is a connection to a server on the fake.
func (f *fake) dial(era string) func(*testing.T, rollouttest.As) rollouttest.Caller {
	return func(t *testing.T, as rollouttest.As) rollouttest.Caller {
		srv, err := New(nil, f)
		if err != nil {
			t.Fatal(err)
		}
		cs := nativetest.Connect(t, srv, era, nil)
		f.mu.Lock()
		handle := fmt.Sprint("handle-", len(f.callers))
		f.callers[handle] = &fakeCaller{name: as.Name, token: as.Token, header: as.Session, own: f.make(as.Name, api.SessionDefault).ID}
		f.mu.Unlock()
		return func(t *testing.T, tool, args string) rollouttest.Answer {
			t.Helper()
			res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(args), Meta: mcp.Meta{wire.MetaTineCaller: handle}})
			if err != nil {
				t.Fatalf("%s %s: %v", tool, args, err)
			}
			a := rollouttest.Answer{IsError: res.IsError, Text: textOf(t, res)}
			if res.StructuredContent != nil {
				if a.Structured, err = json.Marshal(res.StructuredContent); err != nil {
					t.Fatal(err)
				}
			}
			if _, ours := res.Meta[wire.MetaTineError]; ours {
				e := errorOf(t, res)
				a.Error = &e
			}
			return a
		}
	}
}

func TestSuite(t *testing.T) {
	for _, era := range nativetest.Eras() {
		t.Run(era, func(t *testing.T) {
			f := newFake()
			rollouttest.Run(t, &rollouttest.Rig{
				Dial: f.dial(era), Own: [2]string{"notes", "files"}, Shared: "all", Broken: [2]string{"bad", "worse"}, Other: "local_docker",
				Put: func(_, word string) (string, string) { return "put", fmt.Sprintf(`{"word":%q}`, word) },
				Get: func(string) (string, string) { return "get", `{}` },
			})
		})
	}
}
