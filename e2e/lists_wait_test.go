//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// missing is why a server is not in the list of a gateway; empty where it is.
func (g *gateway) missing(t *testing.T, server string) string {
	t.Helper()
	var list struct {
		Meta struct {
			Missing []api.Missing `json:"tine/missing"`
		} `json:"_meta"`
	}
	if err := json.Unmarshal(g.modernList(t), &list); err != nil {
		t.Fatal(err)
	}
	for _, m := range list.Meta.Missing {
		if m.Server == server {
			return m.Reason
		}
	}
	return ""
}

// TestEveryListWaits has a client list that comes when another one has waited in vain
// for a server that still starts.
func TestEveryListWaits(t *testing.T) {
	t.Parallel()
	program := need(t, python)[0]
	a := newLister(t, "0", "one")
	gate := filepath.Join(a.dir, "slow")
	if err := os.Remove(gate); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	g := startGateway(t, "limits: {list_wait: 4s}\nservers:\n"+a.yaml(program, "a", "connect_timeout: 5m"))
	if why := g.missing(t, "a"); !strings.Contains(why, "has not answered yet") {
		t.Errorf("the first list says %q", why)
	}
	opened := make(chan error, 1)
	go func() { opened <- os.WriteFile(gate, []byte("0"), 0o600) }() // once the server reads it
	wantTools(t, g, "when another list has waited", "a__one")
	if err := <-opened; err != nil {
		t.Error(err)
	}
	a.wantStarts(t, "for both lists", 1)
}

// TestFailedServersAreTold lists again and again with a server that does not start in
// time: each list says so, and which key gives it more.
func TestFailedServersAreTold(t *testing.T) {
	t.Parallel()
	program := need(t, python)[0]
	a := newLister(t, "600", "one")
	config := func(connect string) string {
		return "servers:\n" + a.yaml(program, "short", "connect_timeout: "+connect)
	}
	g := startGateway(t, config("1s"))
	const want = "did not start within 1s; servers.short.connect_timeout allows more"
	for i := range 6 {
		if why := g.missing(t, "short"); why != want {
			t.Errorf("list %d says %q", i, why)
		}
	}
	_, err := g.client(t).Call(t.Context(), "short__one", nil)
	if err == nil || !strings.Contains(err.Error(), `server "short": `+want) {
		t.Errorf("a call says %v", err)
	}
	if list, err := g.client(t).Servers(t.Context()); err != nil || list.Servers[0].State != api.StateFailed {
		t.Errorf("the server is %+v, %v", list, err)
	}
	// A new entry is a new chance.
	a.write(t, "slow", "0")
	g.writeConfig(t, config("1m"))
	if err := eventually(func() error {
		got, err := oneShot(t.Context(), g)
		if err == nil && !slices.Equal(got, []string{"short__one"}) {
			err = os.ErrNotExist
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

// TestListsThatDoNotCome has servers that can be called and don't list: their state and
// their lists say so, before a call, after it, and where a call came first.
func TestListsThatDoNotCome(t *testing.T) {
	t.Parallel()
	program := need(t, python)[0]
	a := newLister(t, "0", "one")
	a.write(t, "mute", "")
	g := startGateway(t, "servers:\n"+a.yaml(program, "asked", "timeout: 2s")+a.yaml(program, "called", "timeout: 2s"))
	call := func(server string) {
		t.Helper()
		if _, err := g.client(t).Call(t.Context(), server+"__one", nil); err != nil {
			t.Error(err)
		}
	}
	state := func(server string) (state, reason string) {
		t.Helper()
		list, err := g.client(t).Servers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s := list.Servers[slices.IndexFunc(list.Servers, func(s api.Server) bool { return s.ID == server })]
		return s.State, s.Reason
	}
	call("called")
	for _, server := range []string{"asked", "called"} {
		why := "tools/list: no answer within 2s (servers." + server + ".timeout)"
		if err := eventually(func() error {
			if state, reason := state(server); state != api.StateFailed || reason != why {
				return fmt.Errorf("%s is %s: %q", server, state, reason)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		for range 2 {
			call(server)
			if state, reason := state(server); state != api.StateFailed || reason != why {
				t.Errorf("after a call %s is %s: %q", server, state, reason)
			}
			if got := g.missing(t, server); got != why {
				t.Errorf("after a call the list says that %s lacks for %q", server, got)
			}
			list, err := g.client(t).Tools(t.Context(), server)
			if err != nil || len(list.Missing) != 1 || list.Missing[0].Reason != why {
				t.Errorf("after a call the tools of %s are %+v, %v", server, list, err)
			}
		}
	}
	if err := os.Remove(filepath.Join(a.dir, "mute")); err != nil {
		t.Fatal(err)
	}
	// The first list may still share the answer with one that was asked for before.
	if err := eventually(func() error {
		if list, err := g.client(t).Tools(t.Context(), "asked"); err != nil || len(list.Tools) != 1 {
			return fmt.Errorf("when it lists again its tools are %+v, %v", list, err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if state, reason := state("asked"); state != api.StateReady || reason != "" {
		t.Errorf("when it lists again it is %s: %q", state, reason)
	}
}

// TestSlowCallNamesItsLimit has a call take longer than it may.
func TestSlowCallNamesItsLimit(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "servers: {quick: {builtin: everything, timeout: 1s}}\n")
	_, err := g.client(t).Call(t.Context(), "quick__trigger-long-running-operation", json.RawMessage(`{"duration":600,"steps":1}`))
	if err == nil || !strings.Contains(err.Error(), `server "quick": no answer within 1s (servers.quick.timeout)`) {
		t.Errorf("got %v", err)
	}
}

// TestFinalFailureIsNotTriedAgain has a package that is not there: lists don't ask for
// it again, and a call does.
func TestFinalFailureIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	npx, tries := filepath.Join(dir, "npx"), filepath.Join(dir, "tries")
	if err := os.WriteFile(npx, []byte("#!/bin/sh\necho tried >> "+tries+"\necho npm error code E404 >&2\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	g := startGateway(t, "servers:\n"+yamlServer("gone", npx, []string{"-y", "no-such-package"}))
	count := func() int {
		text, err := os.ReadFile(tries)
		if err != nil {
			t.Error(err)
		}
		return strings.Count(string(text), "\n")
	}
	for i := range 5 {
		if why := g.missing(t, "gone"); !strings.Contains(why, "there is no such package") {
			t.Errorf("list %d says %q", i, why)
		}
	}
	if n := count(); n != 1 {
		t.Errorf("for lists it was tried %d times", n)
	}
	if _, err := g.client(t).Call(t.Context(), "gone__x", nil); err == nil || count() != 2 {
		t.Errorf("a call gives %v after %d tries", err, count())
	}
}
