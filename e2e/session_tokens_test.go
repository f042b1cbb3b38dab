//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

const sessionAuth = `auth:
  tokens:
    - {name: ada, token: token-of-ada-0123456789}
    - {name: bob, token: token-of-bob-0123456789}
    - {name: eve, token: token-of-eve-0123456789, role: viewer}
    - {name: ops, token: token-of-ops-0123456789, role: operator}
`

// forbidden holds that an error says no and gives nothing away.
func forbidden(t testing.TB, what string, err error) {
	t.Helper()
	e := kindOf(err)
	if e == nil || e.Status != http.StatusNotFound && e.Status != http.StatusForbidden && e.Status != http.StatusUnauthorized {
		t.Errorf("%s: %v (%+v), want it refused", what, err, e)
	}
}

// enters reports whether a caller can speak MCP at an address.
func enters(t testing.TB, url, token string, more http.Header) bool {
	t.Helper()
	header := http.Header{"Authorization": {"Bearer " + token}}
	maps.Copy(header, more)
	r, err := post(t.Context(), url, header, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"`+legacyVersion+
		`","capabilities":{},"clientInfo":{"name":"e2e","version":"1"}}}`)
	if err != nil {
		t.Fatal(err)
	}
	m, err := r.answer()
	return err == nil && r.status == http.StatusOK && m.Result != nil
}

// reach tries everything that can be done with a session and a snapshot of it.
func reach(ctx context.Context, c *client.Client, session, snapshot string) map[string]error {
	tried := map[string]error{}
	_, tried["look"] = c.Session(ctx, session)
	_, tried["call"] = use(ctx, c, session, "mem__read_graph", object{})
	_, tried["list its tools"] = c.ToolsIn(ctx, session, "")
	_, tried["fork"] = c.Fork(ctx, session, api.ForkRequest{})
	_, tried["list its forks"] = c.Forks(ctx, session, client.SessionQuery{})
	_, tried["snapshot"] = c.MakeSnapshot(ctx, session, api.SnapshotRequest{})
	_, tried["rewind"] = c.Rewind(ctx, session, api.RewindRequest{})
	_, tried["label"] = c.PatchSession(ctx, session, api.SessionPatch{Labels: map[string]string{"mine": "now"}})
	_, tried["see its tree"] = c.SessionTree(ctx, session)
	_, tried["list its calls"] = c.SessionCalls(ctx, session, client.CallQuery{})
	for _, err := range c.Trajectory(ctx, session) {
		if tried["read its trajectory"] = err; err != nil {
			break
		}
	}
	for _, err := range c.SessionSnapshots(ctx, session) {
		if tried["list its snapshots"] = err; err != nil {
			break
		}
	}
	_, tried["look at its snapshot"] = c.Snapshot(ctx, snapshot)
	_, tried["open from its snapshot"] = c.OpenSession(ctx, api.NewSession{From: snapshot})
	file, err := c.ExportSnapshot(ctx, snapshot)
	if tried["export its snapshot"] = err; err == nil {
		file.Close()
	}
	tried["delete its snapshot"] = c.DeleteSnapshot(ctx, snapshot)
	tried["close"] = c.CloseSession(ctx, session)
	return tried
}

// TestSessionOwners holds that what one principal opens another one neither sees
// nor reaches, over the API, MCP and the command line.
func TestSessionOwners(t *testing.T) {
	t.Parallel()
	g := startGateway(t, sessionAuth+"servers:\n"+yamlBuiltins)
	ada, bob := g.clientAs(t, "token-of-ada-0123456789"), g.clientAs(t, "token-of-bob-0123456789")
	mem := memoryShelf("mem")
	cli := func(who string, args ...string) string {
		t.Helper()
		return g.mustTine(t, append(args, "--token", "token-of-"+who+"-0123456789", "--url", g.url)...)
	}
	ids := map[string]string{}
	for _, who := range []string{"ada", "bob"} {
		var s api.OpenedSession
		if err := json.Unmarshal([]byte(cli(who, "session", "open", "--json")), &s); err != nil {
			t.Fatal(err)
		}
		ids[who] = s.ID
	}
	mem.mustPut(t, ada, ids["ada"], "secret", "of-ada")
	snap, err := ada.MakeSnapshot(t.Context(), ids["ada"], api.SnapshotRequest{Name: "template"})
	if err != nil {
		t.Fatal(err)
	}
	for what, err := range reach(t.Context(), bob, ids["ada"], snap.ID) {
		forbidden(t, "bob: "+what, err)
	}
	for what, err := range reach(t.Context(), bob, ids["ada"], "template") {
		forbidden(t, "bob, by the name of the template: "+what, err)
	}
	for _, path := range []string{"/s/" + ids["ada"] + "/mcp", "/s/" + ids["ada"] + "/mcp/mem"} {
		if !enters(t, g.url+path, "token-of-ada-0123456789", nil) || enters(t, g.url+path, "token-of-bob-0123456789", nil) {
			t.Errorf("at %s ada is not let in, or bob is", path)
		}
	}
	// An id in a header is a hint, to which one must be entitled.
	for who, want := range map[string]bool{"ada": true, "bob": false} {
		header := http.Header{"Authorization": {"Bearer token-of-" + who + "-0123456789"}, "Mcp-Session-Id": {ids["ada"]}}
		r, err := post(t.Context(), g.url+"/mcp", header, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"mem__read_graph","arguments":{}}}`)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(mustJSON(t, r.messages), "of-ada"); got != want {
			t.Errorf("%s with ada's session in a header: %d %s", who, r.status, r.body)
		}
	}
	for who, c := range map[string]*client.Client{"ada": ada, "bob": bob} {
		all, err := openSessions(t.Context(), c, client.SessionQuery{})
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := all[ids[who]]; !ok || len(all) != 1 {
			t.Errorf("%s sees the sessions %v", who, all)
		}
		list := cli(who, "session", "list")
		for owner, id := range ids {
			if strings.Contains(list, id) != (owner == who) {
				t.Errorf("tine session list of %s:\n%s", who, list)
			}
		}
	}
	// bob's template of the same name is another one.
	if _, err := bob.MakeSnapshot(t.Context(), ids["bob"], api.SnapshotRequest{Name: "template"}); err != nil {
		t.Error(err)
	}
	mem.mustHold(t, bob, openSession(t, bob, api.NewSession{From: "template"}).ID, map[string]string{})
	mem.mustHold(t, ada, openSession(t, ada, api.NewSession{From: "template"}).ID, map[string]string{"secret": "of-ada"})
	mem.mustHold(t, ada, ids["ada"], map[string]string{"secret": "of-ada"})

	// A viewer looks, and not at what was said; an operator may do everything.
	eve, ops := g.clientAs(t, "token-of-eve-0123456789"), g.clientAs(t, "token-of-ops-0123456789")
	if _, err := eve.Session(t.Context(), ids["ada"]); err != nil {
		t.Errorf("a viewer looks at a session: %v", err)
	}
	_, err = use(t.Context(), eve, ids["ada"], "mem__read_graph", object{})
	forbidden(t, "a viewer calls a tool", err)
	for _, err := range eve.Trajectory(t.Context(), ids["ada"]) {
		forbidden(t, "a viewer reads a trajectory", err)
		break
	}
	forbidden(t, "a viewer closes a session", eve.CloseSession(t.Context(), ids["ada"]))
	mem.mustHold(t, ops, ids["ada"], map[string]string{"secret": "of-ada"})
	if err := ops.CloseSession(t.Context(), ids["ada"]); err != nil {
		t.Errorf("an operator closes a session: %v", err)
	}
	if _, err := use(t.Context(), ada, ids["ada"], "mem__read_graph", object{}); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("a call in a session that was closed: %v", err)
	}
	if err := ada.CloseSession(t.Context(), ids["ada"]); err != nil {
		t.Errorf("closed twice: %v", err)
	}
}

// TestSessionTokens holds that a session's token opens that session and no other,
// also not one of the same owner, its parent, or its child, and ends with it.
func TestSessionTokens(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, auth string }{{"auth", sessionAuth}, {"open", ""}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := startGateway(t, tt.auth+"servers:\n"+yamlBuiltins)
			owner := g.client(t)
			if tt.auth != "" {
				owner = g.clientAs(t, "token-of-ada-0123456789")
			}
			mem := memoryShelf("mem")
			a, b := openSession(t, owner, api.NewSession{}), openSession(t, owner, api.NewSession{})
			mem.mustPut(t, owner, b.ID, "secret", "of-b")
			snap, err := owner.MakeSnapshot(t.Context(), b.ID, api.SnapshotRequest{})
			if err != nil {
				t.Fatal(err)
			}
			child := fork(t, owner, a.ID, 1)[0]
			mem.mustPut(t, owner, child.ID, "secret", "of-the-child")
			check := func() {
				t.Helper()
				of := g.clientAs(t, a.Token)
				for _, other := range []string{b.ID, child.ID} {
					for what, err := range reach(t.Context(), of, other, snap.ID) {
						forbidden(t, what, err)
					}
					if enters(t, g.url+"/s/"+other+"/mcp", a.Token, nil) || enters(t, g.url+"/mcp", a.Token, http.Header{"Mcp-Session-Id": {other}}) {
						t.Errorf("the token of %s was let in at %s", a.ID, other)
					}
				}
				for what, err := range reach(t.Context(), g.clientAs(t, child.Token), a.ID, snap.ID) {
					forbidden(t, "the parent: "+what, err)
				}
				_, err := of.Sessions(t.Context(), client.SessionQuery{})
				forbidden(t, "list all sessions", err)
				_, err = of.Snapshots(t.Context(), client.SnapshotQuery{})
				forbidden(t, "list all snapshots", err)
				_, err = of.OpenSession(t.Context(), api.NewSession{})
				forbidden(t, "open another one", err)
				// In its own it can do everything, and at /mcp it is in its own.
				mem.mustHold(t, of, a.ID, map[string]string{})
				for _, path := range []string{"/mcp", "/s/" + a.ID + "/mcp"} {
					s, err := open(t.Context(), g.url+path, http.Header{"Authorization": {"Bearer " + a.Token}})
					if err != nil {
						t.Fatalf("%s with its own token: %v", path, err)
					}
					if got := s.mustCall(t, "mem__read_graph", object{}); strings.Contains(got, "secret") {
						t.Errorf("%s with the token of %s shows %s", path, a.ID, got)
					}
				}
			}
			check()
			g.kill()
			if err := g.start(); err != nil {
				t.Fatal(err)
			}
			if owner = g.client(t); tt.auth != "" {
				owner = g.clientAs(t, "token-of-ada-0123456789")
			}
			check()
			mem.mustHold(t, owner, b.ID, map[string]string{"secret": "of-b"})
			of := g.clientAs(t, a.Token)
			if err := of.CloseSession(t.Context(), a.ID); err != nil {
				t.Errorf("a session closed with its own token: %v", err)
			}
			_, err = of.Status(t.Context())
			forbidden(t, "the token of a closed session", err)
		})
	}
}

// TestSessionDefaultForks forks the session that a caller has without asking: the
// child is the caller's, and its token is good for it.
func TestSessionDefaultForks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, auth, token string }{{"auth", sessionAuth, "token-of-ada-0123456789"}, {"open", "", ""}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := startGateway(t, tt.auth+"servers:\n"+yamlBuiltins)
			c := g.clientAs(t, tt.token)
			mem := memoryShelf("mem")
			mem.mustPut(t, c, "", "k", "v")
			var id string
			for s, err := range c.AllSessions(t.Context(), client.SessionQuery{}) {
				if err != nil {
					t.Fatal(err)
				}
				if s.Kind == api.SessionDefault {
					id = s.ID
				}
			}
			if id == "" {
				t.Fatal("there is no default session")
			}
			child := fork(t, c, id, 1)[0]
			for _, when := range []string{"at first", "after a kill"} {
				mem.mustHold(t, g.clientAs(t, tt.token), child.ID, map[string]string{"k": "v"})
				mem.mustHold(t, g.clientAs(t, child.Token), child.ID, map[string]string{"k": "v"})
				grandchild := fork(t, g.clientAs(t, child.Token), child.ID, 1)[0]
				mem.mustHold(t, g.clientAs(t, grandchild.Token), grandchild.ID, map[string]string{"k": "v"})
				if t.Failed() {
					t.Fatal(when)
				}
				g.kill()
				if err := g.start(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
