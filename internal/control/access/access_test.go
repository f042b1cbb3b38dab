package access_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/identity"
)

const (
	user     = "user-user-user-user"
	viewer   = "viewer-viewer-viewer"
	operator = "operator-operator"
	leased   = "tine_ses_x"
	run      = "tine_ses_run"
	narrow   = "tine_ses_narrow"
	reader   = "tine_ses_reader"
	odd      = "tine_ses_odd"
)

// people are a user, a viewer and an operator whom the rules give server seen
// alone, and who has the token of session ses_1, which is the user's.
func people(t *testing.T) map[string]identity.Principal {
	t.Helper()
	var guard *identity.Guard
	guard = identity.NewGuard(identity.Options{
		Tokens: []identity.Token{
			{Name: "ada", Hash: identity.HashToken(user)},
			{Name: "vera", Hash: identity.HashToken(viewer), Role: api.RoleViewer},
			{Name: "otto", Hash: identity.HashToken(operator), Role: api.RoleOperator},
		},
		Rules: []identity.Rule{{Servers: []string{"seen"}}},
		Bound: func(hash string) (identity.Binding, bool) {
			limits := map[string]*identity.Limit{
				identity.HashToken(leased): nil,
				identity.HashToken(run):    {Token: "tok_1", Run: "run_1"},
				identity.HashToken(narrow): {Token: "tok_2", Run: "run_1", Servers: []string{"other"}},
				identity.HashToken(reader): {Token: "tok_3", Allow: []string{api.AllowTrajectory}},
				identity.HashToken(odd):    {Token: "tok_4", Servers: []string{"seen"}, Allow: []string{api.AllowTrajectory, api.AllowFork, api.AllowClose}},
			}
			limit, ok := limits["sha256:"+hash]
			ada, _ := guard.Identify(t.Context(), "Bearer "+user, "")
			return identity.Binding{Session: "ses_1", Pinned: identity.Pin(ada), Limit: limit}, ok
		},
	})
	t.Cleanup(guard.Close)
	all := map[string]identity.Principal{"local": identity.Local()}
	for name, token := range map[string]string{"user": user, "viewer": viewer, "operator": operator, "token": leased, "run": run, "narrow": narrow, "reader": reader, "odd": odd} {
		p, no := guard.Identify(t.Context(), "Bearer "+token, "http://127.0.0.1/")
		if no != nil {
			t.Fatalf("%s: %s", name, no.Message)
		}
		all[name] = p
	}
	return all
}

func TestThings(t *testing.T) {
	mine, other := access.Thing{Owner: "ada", Session: "ses_1"}, access.Thing{Owner: "ada", Session: "ses_2"}
	foreign := access.Thing{Owner: "bob", Session: "ses_3"}
	who := people(t)
	for _, tt := range []struct {
		who        string
		thing      access.Thing
		sees, uses bool
	}{
		{"user", mine, true, true},
		{"user", other, true, true},
		{"user", foreign, false, false},
		{"token", mine, true, true},
		{"token", other, false, false},
		{"token", foreign, false, false},
		{"token", access.Thing{Owner: "ada"}, false, false}, // one that was imported
		{"viewer", mine, true, false},
		{"viewer", foreign, true, false},
		{"operator", foreign, true, true},
		{"local", foreign, true, true},
	} {
		if got := access.Sees(who[tt.who], tt.thing); got != tt.sees {
			t.Errorf("%s sees %+v: %v", tt.who, tt.thing, got)
		}
		if got := access.Uses(who[tt.who], tt.thing); got != tt.uses {
			t.Errorf("%s uses %+v: %v", tt.who, tt.thing, got)
		}
	}
}

func TestServers(t *testing.T) {
	who := people(t)
	for _, tt := range []struct {
		who, member                      string
		knows, starts, brings, fromOther bool
	}{
		{"user", "seen", true, true, true, false},
		{"user", "seen~3", true, true, true, false},
		{"user", "hidden", false, false, false, false},
		{"token", "seen", true, true, true, false},
		{"token", "hidden~1", false, false, false, false},
		{"viewer", "hidden", true, false, false, false},
		{"operator", "hidden", true, false, true, true},
		{"local", "hidden", true, true, true, true},
	} {
		p := who[tt.who]
		got := []bool{access.Knows(p, tt.member), access.Starts(p, tt.member), !access.Brings(p)(tt.member), access.Programs(p)}
		if want := []bool{tt.knows, tt.starts, tt.brings, tt.fromOther}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s and %s: knows, starts, brings, programs of others are %v, want %v", tt.who, tt.member, got, want)
		}
		if access.Hidden(p)(tt.member) == tt.knows {
			t.Errorf("%s is hidden from %s: %v", tt.member, tt.who, tt.knows)
		}
	}
}

func TestCalls(t *testing.T) {
	who := people(t)
	session := &access.Thing{Owner: "ada", Session: "ses_1"}
	mine := access.Thing{Owner: "ada", Session: "ses_1"}
	theirs := access.Thing{Owner: "bob", Session: "ses_1"} // made by bob in ada's session
	for _, tt := range []struct {
		who    string
		call   access.Call
		within *access.Thing
		want   access.Look
	}{
		{"user", access.Call{Thing: mine, Server: "seen"}, nil, access.Look{Row: true, Contents: true}},
		{"user", access.Call{Thing: theirs, Server: "seen"}, nil, access.Look{}},
		{"user", access.Call{Thing: theirs, Server: "seen"}, session, access.Look{Row: true, Contents: true}},
		{"token", access.Call{Thing: theirs, Server: "seen"}, session, access.Look{Row: true, Contents: true}},
		{"token", access.Call{Thing: theirs, Server: "seen", Aside: true}, session, access.Look{}},
		{"token", access.Call{Thing: mine, Server: "seen", Run: "run_1"}, session, access.Look{Row: true, Contents: true}},
		{"user", access.Call{Thing: mine, Server: "seen", Run: "run_1"}, nil, access.Look{Row: true, Contents: true}},
		// A run sees its own calls, to servers that its token reaches.
		{"run", access.Call{Thing: mine, Server: "seen", Run: "run_1"}, session, access.Look{Row: true, Contents: true}},
		{"run", access.Call{Thing: mine, Server: "seen", Run: "run_2"}, session, access.Look{}},
		{"run", access.Call{Thing: mine, Server: "seen"}, session, access.Look{}},
		{"run", access.Call{Thing: mine, Server: "seen", Run: "run_1", Aside: true}, session, access.Look{}},
		{"narrow", access.Call{Thing: mine, Server: "seen", Run: "run_1"}, session, access.Look{}},
		{"narrow", access.Call{Thing: mine, Server: "seen", Run: "run_1"}, nil, access.Look{}},
		{"reader", access.Call{Thing: mine, Server: "seen"}, session, access.Look{Row: true, Contents: true}},
		{"reader", access.Call{Thing: theirs, Server: "seen", Run: "run_2"}, session, access.Look{Row: true, Contents: true}},
		{"reader", access.Call{Thing: mine, Server: "seen", Aside: true}, session, access.Look{}},
		{"user", access.Call{Thing: theirs, Server: "seen", Aside: true}, session, access.Look{Row: true, Contents: true}},
		{"viewer", access.Call{Thing: mine, Server: "seen"}, nil, access.Look{Row: true}},
		{"viewer", access.Call{Thing: mine, Server: "seen"}, session, access.Look{Row: true}},
		{"viewer", access.Call{Thing: access.Thing{Owner: "vera"}, Server: "seen"}, nil, access.Look{Row: true, Contents: true}},
		{"operator", access.Call{Thing: mine, Server: "seen"}, nil, access.Look{Row: true, Contents: true}},
		// What was denied shows its maker no server that it does not know of, and
		// only operators why.
		{"user", access.Call{Thing: mine, Server: "seen", Denied: true}, nil, access.Look{Row: true, Contents: true}},
		{"user", access.Call{Thing: mine, Server: "hidden", Denied: true}, nil, access.Look{Contents: true}},
		{"token", access.Call{Thing: mine, Server: "hidden~1", Denied: true}, session, access.Look{Contents: true}},
		{"viewer", access.Call{Thing: mine, Server: "hidden", Denied: true}, nil, access.Look{Row: true}},
		{"operator", access.Call{Thing: mine, Server: "hidden", Denied: true}, nil, access.Look{Row: true, Contents: true, Reason: true}},
	} {
		if got := access.At(who[tt.who], tt.call, tt.within); got != tt.want {
			t.Errorf("%s at %+v within %v: %+v, want %+v", tt.who, tt.call, tt.within, got, tt.want)
		}
	}
}

func TestUnnamed(t *testing.T) {
	who := people(t)
	hidden := &api.Error{Kind: api.KindRefused, Server: "hidden", Retryable: true, Message: `server "hidden" can't be forked`}
	for name, err := range map[string]error{
		"alone": fmt.Errorf("taken back: %w", hidden),
		"among": &api.Error{Kind: api.KindRefused, Retryable: true, Message: "2 servers failed: seen and hidden", Causes: []*api.Error{{Server: "seen"}, hidden}},
	} {
		var e *api.Error
		if got := access.Unnamed(who["user"], err); !errors.As(got, &e) || strings.Contains(fmt.Sprint(got), "hidden") || e.Kind != api.KindRefused || !e.Retryable {
			t.Errorf("%s: a user is told %v", name, got)
		}
		if got := access.Unnamed(who["viewer"], err); got != err {
			t.Errorf("%s: a viewer is told %v", name, got)
		}
	}
	for _, err := range []error{nil, errors.New("hidden"), &api.Error{Server: "seen", Message: "x"}} {
		if got := access.Unnamed(who["user"], err); got != err {
			t.Errorf("%v became %v", err, got)
		}
	}
}

func TestOwners(t *testing.T) {
	cfg := &config.Config{Separator: "__"}
	if !access.Owners(cfg)("ada", nil, "hidden") {
		t.Error("without rules something is hidden")
	}
	cfg.Auth.Rules = []config.Rule{{Principals: []string{"ada"}, Servers: []string{"seen"}}}
	starts := access.Owners(cfg)
	for _, tt := range []struct {
		name   string
		pin    string
		member string
		want   bool
	}{
		{"ada", ``, "seen~1", true},
		{"ada", ``, "hidden", false},
		{"ada", `{"name":"ada"}`, "seen", true},
		{"ada", `{"name":"ada"}`, "hidden", false},
		{"bob", ``, "seen", false},
		{"", `{"local":true}`, "hidden", true},
		{"ada", `broken`, "seen", false},
	} {
		if got := starts(tt.name, []byte(tt.pin), tt.member); got != tt.want {
			t.Errorf("%s is started for %s %s: %v", tt.member, tt.name, tt.pin, got)
		}
	}
}
