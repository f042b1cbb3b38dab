package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

func TestSessionRequests(t *testing.T) {
	ttl := "0s"
	tests := []struct {
		name   string
		do     func(context.Context, *client.Client) error
		method string
		uri    string
		body   string
		key    string
		answer string
	}{
		{"open", func(ctx context.Context, c *client.Client) error {
			_, err := c.OpenSession(ctx, api.NewSession{From: "base", Labels: map[string]string{"a": "<b>"}, TTL: "2h"}, client.Once("k1"))
			return err
		}, "POST", "/v1/sessions", `{"from":"base","labels":{"a":"<b>"},"ttl":"2h"}`, "k1", `{}`},
		{"list", func(ctx context.Context, c *client.Client) error {
			_, err := c.Sessions(ctx, client.SessionQuery{Owner: "kim", Parent: "ses_p", Labels: map[string]string{"b": "2", "a": "1&"}, Closed: true, Limit: 5, After: "ses_a"})
			return err
		}, "GET", "/v1/sessions?after=ses_a&closed=true&label=a%3D1%26&label=b%3D2&limit=5&owner=kim&parent=ses_p", "", "", `{}`},
		{"get", func(ctx context.Context, c *client.Client) error { _, err := c.Session(ctx, "../x"); return err }, "GET", "/v1/sessions/..%2Fx", "", "", `{}`},
		{"patch", func(ctx context.Context, c *client.Client) error {
			_, err := c.PatchSession(ctx, "s", api.SessionPatch{TTL: &ttl})
			return err
		}, "PATCH", "/v1/sessions/s", `{"ttl":"0s"}`, "", `{}`},
		{"close", func(ctx context.Context, c *client.Client) error { return c.CloseSession(ctx, "s") }, "DELETE", "/v1/sessions/s", "", "", ``},
		{"fork", func(ctx context.Context, c *client.Client) error {
			_, err := c.Fork(ctx, "s", api.ForkRequest{Count: 8}, client.Once("k2"))
			return err
		}, "POST", "/v1/sessions/s/forks", `{"count":8}`, "k2", `{}`},
		{"forks", func(ctx context.Context, c *client.Client) error {
			_, err := c.Forks(ctx, "s", client.SessionQuery{Owner: "not sent", Closed: true})
			return err
		}, "GET", "/v1/sessions/s/forks?closed=true", "", "", `{}`},
		{"rewind", func(ctx context.Context, c *client.Client) error {
			_, err := c.Rewind(ctx, "s", api.RewindRequest{Snapshot: "base"})
			return err
		}, "POST", "/v1/sessions/s/rewind", `{"snapshot":"base"}`, "", `{}`},
		{"tree", func(ctx context.Context, c *client.Client) error { _, err := c.SessionTree(ctx, "s"); return err }, "GET", "/v1/sessions/s/tree", "", "", `{}`},
		{"calls", func(ctx context.Context, c *client.Client) error {
			_, err := c.SessionCalls(ctx, "s", client.CallQuery{Session: "not sent", Run: "r", Failed: true, Limit: 2})
			return err
		}, "GET", "/v1/sessions/s/calls?failed=1&limit=2&run=r", "", "", `{}`},
		{"make a token", func(ctx context.Context, c *client.Client) error {
			_, err := c.MintSessionToken(ctx, "s", api.NewSessionToken{Run: "r", Servers: []string{}, TTL: "1h"}, client.Once("k9"))
			return err
		}, "POST", "/v1/sessions/s/tokens", `{"run":"r","servers":[],"ttl":"1h"}`, "k9", `{}`},
		{"make a token for all", func(ctx context.Context, c *client.Client) error {
			_, err := c.MintSessionToken(ctx, "s", api.NewSessionToken{})
			return err
		}, "POST", "/v1/sessions/s/tokens", `{}`, "", `{}`},
		{"tokens", func(ctx context.Context, c *client.Client) error { _, err := c.SessionTokens(ctx, "s"); return err }, "GET", "/v1/sessions/s/tokens", "", "", `{}`},
		{"revoke a token", func(ctx context.Context, c *client.Client) error { return c.RevokeSessionToken(ctx, "s", "../t") }, "DELETE", "/v1/sessions/s/tokens/..%2Ft", "", "", ``},
		{"revoke tokens", func(ctx context.Context, c *client.Client) error {
			n, err := c.RevokeRunTokens(ctx, "s", "a b")
			if err == nil && n != 2 {
				err = fmt.Errorf("%d were revoked", n)
			}
			return err
		}, "DELETE", "/v1/sessions/s/tokens?run=a+b", "", "", `{"revoked":2}`},
		{"snapshot", func(ctx context.Context, c *client.Client) error {
			_, err := c.MakeSnapshot(ctx, "s", api.SnapshotRequest{Name: "base"}, client.Once("k3"))
			return err
		}, "POST", "/v1/sessions/s/snapshots", `{"name":"base"}`, "k3", `{}`},
		{"snapshots", func(ctx context.Context, c *client.Client) error {
			_, err := c.Snapshots(ctx, client.SnapshotQuery{Owner: "kim", Labels: map[string]string{"a": "b"}, Auto: true, Limit: 3, After: "x.y"})
			return err
		}, "GET", "/v1/snapshots?after=x.y&auto=true&label=a%3Db&limit=3&owner=kim", "", "", `{}`},
		{"one snapshot", func(ctx context.Context, c *client.Client) error { _, err := c.Snapshot(ctx, "base"); return err }, "GET", "/v1/snapshots/base", "", "", `{}`},
		{"delete a snapshot", func(ctx context.Context, c *client.Client) error { return c.DeleteSnapshot(ctx, "base") }, "DELETE", "/v1/snapshots/base", "", "", ``},
		{"import", func(ctx context.Context, c *client.Client) error {
			_, err := c.ImportSnapshot(ctx, "a b", io.MultiReader(strings.NewReader("the "), strings.NewReader("file")), client.Once("k4"))
			return err
		}, "POST", "/v1/snapshots/import?name=a+b", "the file", "k4", `{}`},
		{"import without a name", func(ctx context.Context, c *client.Client) error {
			_, err := c.ImportSnapshot(ctx, "", strings.NewReader("x"))
			return err
		}, "POST", "/v1/snapshots/import", "x", "", `{}`},
		{"call in", func(ctx context.Context, c *client.Client) error {
			_, err := c.CallIn(ctx, "ses_x", "a__b", nil)
			return err
		}, "POST", "/v1/call", `{"tool":"a__b","session":"ses_x"}`, "", `{"result":{}}`},
		{"annotate", func(ctx context.Context, c *client.Client) error {
			_, err := c.Annotate(ctx, "s", api.NewAnnotation{Call: "call_1", Text: "<a>", Logprobs: []api.Logprob{-0.5, api.Logprob(math.NaN())}}, client.Once("k5"))
			return err
		}, "POST", "/v1/sessions/s/annotations", `{"call":"call_1","text":"<a>","logprobs":[-0.5,null]}`, "k5", `{}`},
		{"call with meta", func(ctx context.Context, c *client.Client) error {
			out, err := c.CallTool(ctx, api.CallRequest{Tool: "a__b", Meta: []byte(`{"x":1}`)}, nil)
			if err == nil && out.Call != "call_1" {
				err = fmt.Errorf("got %+v", out)
			}
			return err
		}, "POST", "/v1/call", `{"tool":"a__b","meta":{"x":1}}`, "", `{"result":{},"call":"call_1"}`},
		{"new lease", func(ctx context.Context, c *client.Client) error {
			_, err := c.NewLease(ctx, api.NewLease{TTL: "10s"}, client.Once("k6"))
			return err
		}, "POST", "/v1/leases", `{"ttl":"10s"}`, "k6", `{}`},
		{"renew a lease", func(ctx context.Context, c *client.Client) error { _, err := c.RenewLease(ctx, "l"); return err }, "PUT", "/v1/leases/l", "", "", `{}`},
		{"end a lease", func(ctx context.Context, c *client.Client) error { return c.EndLease(ctx, "l") }, "DELETE", "/v1/leases/l", "", "", ``},
		{"leases", func(ctx context.Context, c *client.Client) error { _, err := c.Leases(ctx); return err }, "GET", "/v1/leases", "", "", `{}`},
		{"tools in", func(ctx context.Context, c *client.Client) error { _, err := c.ToolsIn(ctx, "ses_x", "a"); return err }, "GET", "/v1/tools?server=a&session=ses_x", "", "", `{}`},
		{"openapi", func(ctx context.Context, c *client.Client) error {
			doc, err := c.OpenAPI(ctx)
			if string(doc) != `{"openapi":"3.1.0"}` {
				return fmt.Errorf("got %s", doc)
			}
			return err
		}, "GET", "/v1/openapi.json", "", "", `{"openapi":"3.1.0"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var method, uri, body, key string
			c := serve(t, client.Options{}, func(w http.ResponseWriter, r *http.Request) {
				b, _ := io.ReadAll(r.Body)
				method, uri, body, key = r.Method, r.RequestURI, string(b), r.Header.Get("Idempotency-Key")
				io.WriteString(w, tt.answer)
			})
			if err := tt.do(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			if method != tt.method || uri != tt.uri || body != tt.body || key != tt.key {
				t.Errorf("sent %s %s %q with key %q; want %s %s %q %q", method, uri, body, key, tt.method, tt.uri, tt.body, tt.key)
			}
		})
	}
}

func TestAs(t *testing.T) {
	var auth []string
	c := serve(t, client.Options{Token: "mine"}, func(w http.ResponseWriter, r *http.Request) {
		auth = append(auth, r.Header.Get("Authorization"))
		io.WriteString(w, `{}`)
	})
	other, err := c.As("theirs")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*client.Client{other, c} {
		if _, err := c.Status(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(auth, []string{"Bearer theirs", "Bearer mine"}) {
		t.Errorf("showed %q", auth)
	}
	if _, err := c.As("a\nb"); err == nil {
		t.Error("a token with a line break was taken")
	}
}

// TestPages reads lists of several pages, one of them empty, to the end, to a
// break and to an error.
func TestPages(t *testing.T) {
	asked := 0
	c := serve(t, client.Options{}, func(w http.ResponseWriter, r *http.Request) {
		asked++
		at, _ := strconv.Atoi(r.URL.Query().Get("after"))
		switch {
		case r.URL.Query().Get("owner") == "stuck" && at == 1:
			io.WriteString(w, `{"sessions":[],"snapshots":[],"next":"1"}`)
		case r.URL.Query().Get("owner") == "broken" && at == 1:
			w.WriteHeader(500)
			io.WriteString(w, `{"kind":"infrastructure","message":"no","retryable":false}`)
		case at == 0:
			io.WriteString(w, `{"sessions":[{"id":"a"},{"id":"b"}],"snapshots":[{"id":"a"},{"id":"b"}],"next":"1"}`)
		case at == 1:
			io.WriteString(w, `{"sessions":[],"snapshots":[],"next":"2"}`)
		default:
			io.WriteString(w, `{"sessions":[{"id":"c"}],"snapshots":[{"id":"c"}]}`)
		}
	})
	var ids []string
	for s, err := range c.AllSessions(t.Context(), client.SessionQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, s.ID)
	}
	for s, err := range c.AllSnapshots(t.Context(), client.SnapshotQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, s.ID)
	}
	for s, err := range c.SessionSnapshots(t.Context(), "s") {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, s.ID)
	}
	if got := strings.Join(ids, ""); got != "abcabcabc" {
		t.Errorf("got %s", got)
	}
	asked = 0
	for range c.AllSessions(t.Context(), client.SessionQuery{}) {
		break
	}
	if asked != 1 {
		t.Errorf("asked %d times for what was not read", asked)
	}
	for _, owner := range []string{"stuck", "broken"} {
		var last error
		n := 0
		for _, err := range c.AllSessions(t.Context(), client.SessionQuery{Owner: owner}) {
			n, last = n+1, err
		}
		if n != 3 || last == nil {
			t.Errorf("%s: %d items, the last with %v", owner, n, last)
		}
	}
}

func TestTrajectory(t *testing.T) {
	big := strings.Repeat("x", 100<<10)
	for _, tt := range []struct {
		name  string
		serve http.HandlerFunc
		steps int
		err   string // empty for none
	}{
		{"whole", func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, `{"type":"session","session":"a"}`+"\n\n"+`{"type":"call","session":"a","result":"`+big+`"}`+"\n")
		}, 2, ""},
		{"nothing", func(w http.ResponseWriter, r *http.Request) {}, 0, ""},
		{"broken off", func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, `{"type":"session","session":"a"}`+"\n")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, 1, "broke off"},
		{"no step", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "<html>\n") }, 0, "not a step"},
		{"too large", func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, `{"type":"call","result":"`+strings.Repeat("x", 300<<10)+`"}`)
		}, 0, "limit"},
		{"refused", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(404)
			io.WriteString(w, `{"kind":"invalid","message":"there is no session a","retryable":false}`)
		}, 0, "there is no session"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := serve(t, client.Options{MaxBody: 200 << 10}, func(w http.ResponseWriter, r *http.Request) {
				if r.RequestURI != "/v1/sessions/a/trajectory" || r.Header.Get("Accept") != "application/x-ndjson" {
					t.Errorf("asked %s for %s", r.RequestURI, r.Header.Get("Accept"))
				}
				tt.serve(w, r)
			})
			steps, last := 0, error(nil)
			for _, err := range c.Trajectory(t.Context(), "a") {
				if last = err; err == nil {
					steps++
				}
			}
			if steps != tt.steps || (last == nil) != (tt.err == "") || last != nil && !strings.Contains(last.Error(), tt.err) {
				t.Errorf("%d steps, then %v", steps, last)
			}
		})
	}
}

func TestExport(t *testing.T) {
	name := `attachment; filename="base.tine"`
	abort := false
	c := serve(t, client.Options{}, func(w http.ResponseWriter, r *http.Request) {
		if r.RequestURI == "/v1/snapshots/nosuch/export" {
			w.WriteHeader(404)
			io.WriteString(w, `{"kind":"invalid","message":"none","retryable":false}`)
			return
		}
		w.Header().Set("Content-Disposition", name)
		io.WriteString(w, "the file")
		if abort {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	})
	for _, tt := range []struct{ header, want string }{
		{name, "base.tine"}, {"", "snapshot.tine"}, {`attachment; filename="../x"`, "snapshot.tine"}, {`attachment; filename=".bashrc"`, "snapshot.tine"}, {`attachment; filename="a\\b"`, "snapshot.tine"},
	} {
		name = tt.header
		e, err := c.ExportSnapshot(t.Context(), "base")
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(e)
		_ = e.Close()
		if err != nil || string(b) != "the file" || e.Name != tt.want {
			t.Errorf("%q: read %q as %q, %v", tt.header, b, e.Name, err)
		}
	}
	abort = true
	e, err := c.ExportSnapshot(t.Context(), "base")
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := io.ReadAll(e); err == nil {
		t.Error("a part was taken for the whole")
	}
	var refused *api.Error
	if _, err := c.ExportSnapshot(t.Context(), "nosuch"); !errors.As(err, &refused) || refused.Status != 404 {
		t.Errorf("got %v", err)
	}
}

func TestKeyedRequestBreaksOff(t *testing.T) {
	c := serve(t, client.Options{}, func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) })
	if _, err := c.OpenSession(t.Context(), api.NewSession{}, client.Once("k")); err == nil || !strings.Contains(err.Error(), "same idempotency key") {
		t.Errorf("got %v", err)
	}
}
