//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
	"github.com/tine-mcp/tine/e2e/teller"
)

// tellServer is the program of e2e/tellserver, built once.
var tellServer = built("tellserver")

func mustTellServer(t testing.TB) string {
	t.Helper()
	path, err := tellServer()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// tellHTTP runs a teller over HTTP and returns its URL.
func tellHTTP(t testing.TB, s *teller.Server) string {
	t.Helper()
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return h.URL + "/mcp"
}

// control is a client of the gateway's control API as the user of this machine,
// or as the principal of a token.
func (g *gateway) control(t testing.TB, token string) *client.Client {
	t.Helper()
	if token == "" {
		r, err := g.record()
		if err != nil {
			t.Fatal(err)
		}
		token = r.Token
	}
	c, err := client.New(client.Options{URL: g.url, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// get reads a path as the principal of a token, or without one.
func (g *gateway) get(ctx context.Context, path, token string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.url+path, nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// journal pages through all calls, newest first.
func (g *gateway) journal(t testing.TB, q client.CallQuery) []api.Call {
	t.Helper()
	c := g.control(t, "")
	var all []api.Call
	for q.Limit = 1000; ; {
		list, err := c.Calls(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, list.Calls...)
		if list.Next == "" {
			return all
		}
		q.Before = list.Next
	}
}

// told is what a tell tool answered.
func told(t testing.TB, text string) teller.Told {
	t.Helper()
	var v teller.Told
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("tell answered %q: %v", text, err)
	}
	return v
}
