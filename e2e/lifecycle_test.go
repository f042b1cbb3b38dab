//go:build unix

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestDrain holds that SIGTERM lets a running call end, and no new one begin.
func TestDrain(t *testing.T) {
	t.Parallel()
	calls := filepath.Join(t.TempDir(), "calls")
	g := startGateway(t, "servers:\n"+yamlServer("good", badServer, []string{"-calls", calls}))
	s := mustOpen(t, g.url+"/mcp")
	type outcome struct {
		result toolResult
		err    error
	}
	slow := make(chan outcome, 1)
	go func() {
		r, err := s.call(context.WithoutCancel(t.Context()), "good__sleep", map[string]any{"ms": 1500, "text": "slept well"})
		slow <- outcome{r, err}
	}()
	if err := eventually(func() error {
		data, err := os.ReadFile(calls)
		if err == nil && !strings.Contains(string(data), "sleep") {
			err = fmt.Errorf("the call has not arrived: %q", data)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	code, err := g.stop()
	if err != nil {
		t.Fatal(err)
	}
	if code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	got := <-slow
	if got.err != nil || got.result.IsError || got.result.text() != "slept well" {
		t.Errorf("the running call was answered %q, %v", got.result.text(), got.err)
	}
	if _, err := open(context.WithoutCancel(t.Context()), g.url+"/mcp", nil); err == nil {
		t.Error("the gateway still answers")
	}
}

// TestReload adds, changes and removes servers while a call on another one is
// running, and a client that only listens is told.
func TestReload(t *testing.T) {
	t.Parallel()
	steady := yamlServer("steady", badServer, nil, "scope: shared")
	g := startGateway(t, "servers:\n"+steady)
	s := mustOpen(t, g.url+"/mcp")
	pid := s.mustCall(t, "steady__remember", map[string]any{"key": "k", "value": "kept"})

	type outcome struct {
		result toolResult
		err    error
	}
	slow := make(chan outcome, 1)
	go func() {
		r, err := s.call(t.Context(), "steady__sleep", map[string]any{"ms": 3000, "text": "undisturbed"})
		slow <- outcome{r, err}
	}()
	lists := func(want string, present bool) {
		t.Helper()
		if err := eventually(func() error {
			names, err := s.tools(t.Context())
			if err != nil {
				return final{err}
			}
			if slices.Contains(names, want) != present {
				return fmt.Errorf("%s listed: %t, want %t, in %v", want, !present, present, names)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	g.writeConfig(t, "servers:\n"+steady+yamlServer("extra", badServer, nil))
	lists("extra__echo", true)
	if got := s.mustCall(t, "extra__echo", map[string]any{"text": "new here"}); got != "new here" {
		t.Errorf("the added server answers %q", got)
	}
	g.writeConfig(t, "servers:\n"+steady+yamlServer("extra", badServer, nil, "tools: {rename: {echo: parrot}}"))
	lists("extra__parrot", true)
	lists("extra__echo", false)

	// A config that is wrong changes nothing and says where it is wrong.
	g.writeConfig(t, "servers:\n"+steady+"  extra:\n    comand: x\n")
	if err := eventually(func() error {
		log, err := os.ReadFile(g.logPath())
		if err == nil && !strings.Contains(string(log), "comand") {
			err = errors.New("the log does not name the wrong key")
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	lists("extra__parrot", true)

	g.writeConfig(t, "servers:\n"+steady)
	lists("extra__parrot", false)
	lists("steady__echo", true)
	if got := <-slow; got.err != nil || got.result.text() != "undisturbed" {
		t.Errorf("the running call was answered %q, %v", got.result.text(), got.err)
	}
	if got := s.mustCall(t, "steady__recall", map[string]any{"key": "k"}); got != "kept" {
		t.Errorf("the untouched server remembers %q", got)
	}
	if got := s.mustCall(t, "steady__remember", map[string]any{"key": "k"}); got != pid {
		t.Errorf("the untouched server is process %s, was %s", got, pid)
	}
}

// TestKeepInstances restarts a gateway the way a supervisor does and holds that
// clients and servers do not notice.
func TestKeepInstances(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "servers:\n"+yamlServer("mine", badServer, nil)+yamlServer("ours", badServer, nil, "scope: shared"))
	g.args = append(g.args, "--keep-instances")
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, g.url+"/mcp")
	for _, server := range []string{"mine", "ours"} {
		s.mustCall(t, server+"__remember", map[string]any{"key": "k", "value": server})
	}
	for range 2 {
		if code, err := g.stop(); err != nil || code != 0 {
			t.Fatalf("exit code %d, %v", code, err)
		}
		if n := len(holders(g.state())); n != 2 {
			t.Errorf("%d servers are left for the next gateway, want 2", n)
		}
		if err := g.start(); err != nil {
			t.Fatal(err)
		}
		for _, server := range []string{"mine", "ours"} {
			if got := s.mustCall(t, server+"__recall", map[string]any{"key": "k"}); got != server {
				t.Errorf("%s remembers %q", server, got)
			}
		}
	}
	g.args = g.args[:len(g.args)-1]
	if _, err := g.stop(); err != nil {
		t.Fatal(err)
	}
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	if got := s.mustCall(t, "ours__recall", map[string]any{"key": "k"}); got != "ours" {
		t.Errorf("ours remembers %q", got)
	}
}
