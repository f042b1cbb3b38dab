package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/testkit"
)

// TestRevokedOwners follows a principal that is revoked and comes back: the tokens
// of its sessions go with it.
func TestRevokedOwners(t *testing.T) {
	w := openWorlds(t, teamYAML)
	kim := want[api.CreatedToken](t, w, "POST", "/v1/tokens", `{"name":"kim"}`, asOps...)
	s := w.open(t, `{}`, bearer(kim.Secret)...)
	w.tool(t, s.ID, "add", bearer(s.Token)...)
	child := want[api.Forks](t, w, "POST", "/v1/sessions/"+s.ID+"/forks", "", bearer(s.Token)...).Sessions[0]
	stream, end := follow(t, w.world, "/v1/sessions/"+s.ID+"/calls?follow=true", bearer(s.Token))
	defer end()

	// Another secret changes nothing about the sessions.
	rotated := want[api.CreatedToken](t, w, "POST", "/v1/tokens/kim/rotate", "", asOps...)
	if rotated.Name != "kim" || rotated.Role != "user" || rotated.Secret == kim.Secret {
		t.Errorf("rotated: %+v", rotated.Token)
	}
	w.refused(t, http.StatusUnauthorized, "GET", "/v1/sessions", "", bearer(kim.Secret)...)
	want[api.Session](t, w, "GET", "/v1/sessions/"+s.ID, "", bearer(rotated.Secret)...)
	w.tool(t, s.ID, "add", bearer(s.Token)...)
	if line := <-stream; !strings.Contains(line, `"tools/call"`) {
		t.Errorf("the stream has %q", line)
	}
	w.refused(t, http.StatusConflict, "POST", "/v1/tokens/ada/rotate", "", asOps...) // of the config
	w.refused(t, http.StatusNotFound, "POST", "/v1/tokens/nosuch/rotate", "", asOps...)
	w.refused(t, http.StatusForbidden, "POST", "/v1/tokens/kim/rotate", "", asAda...)

	refused := func(when string) {
		t.Helper()
		for _, one := range []api.OpenedSession{s, child} {
			who := bearer(one.Token)
			for _, q := range []struct{ method, path, body string }{
				{"GET", "/v1/sessions/" + one.ID, ""}, {"POST", "/v1/sessions/" + one.ID + "/forks", ""},
				{"POST", "/v1/sessions/" + one.ID + "/snapshots", ""}, {"POST", "/v1/call", `{"tool":"n__show"}`}, {"GET", "/v1/openapi.json", ""},
			} {
				if e := w.refused(t, http.StatusUnauthorized, q.method, q.path, q.body, who...); !strings.Contains(e.Message, "owner") {
					t.Errorf("%s: %s %s says %q", when, q.method, q.path, e.Message)
				}
			}
			for _, path := range []string{"/mcp", "/s/" + one.ID + "/mcp", "/mcp/n"} {
				if r := w.do(t, "POST", path, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, append([]string{"Content-Type", "application/json"}, who...)...); r.status != http.StatusUnauthorized {
					t.Errorf("%s: MCP at %s: status %d", when, path, r.status)
				}
			}
		}
	}
	want[api.Token](t, w, "DELETE", "/v1/tokens/kim", "", asOps...)
	for range stream { // it ends
	}
	refused("when kim is revoked")
	// What an operator makes of the session for kim is no way around it.
	again := want[api.Forks](t, w, "POST", "/v1/sessions/"+s.ID+"/forks", "", asOps...).Sessions[0]
	minted := want[api.OpenedSession](t, w, "POST", "/v1/sessions/"+child.ID+"/token", "", asOps...)
	w.refused(t, http.StatusUnauthorized, "GET", "/v1/sessions/"+again.ID, "", bearer(again.Token)...)
	w.refused(t, http.StatusUnauthorized, "GET", "/v1/sessions/"+child.ID, "", bearer(minted.Token)...)
	child.Token = minted.Token
	w.restart()
	refused("after a restart")

	want[api.CreatedToken](t, w, "POST", "/v1/tokens", `{"name":"kim","role":"viewer"}`, asOps...)
	for _, one := range []api.OpenedSession{s, child, again} {
		if got := w.tool(t, one.ID, "show", bearer(one.Token)...); got == "" {
			t.Errorf("%s has %s", one.ID, got)
		}
	}
}

// TestNewSessionTokens checks that a session gets another token, and that the one
// before it is good for nothing.
func TestNewSessionTokens(t *testing.T) {
	w := openWorlds(t, teamYAML)
	s := w.open(t, `{}`, asAda...)
	at := "/v1/sessions/" + s.ID
	w.tool(t, s.ID, "add", bearer(s.Token)...)
	stream, end := follow(t, w.world, at+"/calls?follow=true", bearer(s.Token))
	defer end()
	w.refused(t, http.StatusForbidden, "POST", at+"/token", "", bearer(s.Token)...) // not for itself
	w.refused(t, http.StatusForbidden, "POST", at+"/token", "", asEve...)
	w.refused(t, http.StatusNotFound, "POST", at+"/token", "", asBob...)
	next := want[api.OpenedSession](t, w, "POST", at+"/token", "", asAda...)
	if next.Token == "" || next.Token == s.Token || next.ID != s.ID {
		t.Errorf("it is %+v", next.Session)
	}
	for range stream { // it ends
	}
	for _, restarted := range []bool{false, true} {
		if restarted {
			w.restart()
		}
		w.refused(t, http.StatusUnauthorized, "GET", at, "", bearer(s.Token)...)
		if got := w.tool(t, s.ID, "show", bearer(next.Token)...); got != "1" {
			t.Errorf("it has %s", got)
		}
	}
	want[api.Session](t, w, "PATCH", at, `{"labels":{"a":"b"}}`, asAda...) // does not bring the old one back
	w.refused(t, http.StatusUnauthorized, "GET", at, "", bearer(s.Token)...)
	want[api.Session](t, w, "GET", at, "", bearer(next.Token)...)
	w.gone(t, at, asAda...)
	w.refused(t, http.StatusGone, "POST", at+"/token", "", asAda...)
	w.refused(t, http.StatusUnauthorized, "GET", at, "", bearer(next.Token)...)
	// The default session has none.
	want[api.ToolList](t, w, "GET", "/v1/tools", "", asAda...)
	for _, one := range want[api.SessionList](t, w, "GET", "/v1/sessions", "", asAda...).Sessions {
		w.refused(t, http.StatusBadRequest, "POST", "/v1/sessions/"+one.ID+"/token", "", asAda...)
	}
}

// follow reads a stream of lines, those that say something.
func follow(t *testing.T, w *world, path string, headers []string) (<-chan string, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	req, err := http.NewRequestWithContext(ctx, "GET", w.at(path), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := w.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: status %d", path, resp.StatusCode)
	}
	lines := make(chan string, 100)
	in := bufio.NewScanner(resp.Body)
	in.Scan() // it follows from here on
	go func() {
		defer close(lines)
		defer resp.Body.Close()
		for in.Scan() {
			if json.Valid(in.Bytes()) {
				lines <- in.Text()
			}
		}
	}()
	return lines, cancel
}
