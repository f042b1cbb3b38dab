package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/telemetry"
)

func startNetworkLog(t *testing.T) (l *networkLog, said *bytes.Buffer) {
	t.Helper()
	said = &bytes.Buffer{}
	l, err := newNetworkLog(slog.New(slog.NewTextHandler(said, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	return l, said
}

// TestNetworkLog holds that all connections added before close are written, also
// those added before start.
func TestNetworkLog(t *testing.T) {
	l, said := startNetworkLog(t)
	var got []string
	write := func(_ context.Context, n driver.Network) { got = append(got, n.Host) }
	l.add(driver.Network{Host: "a"})
	l.start(write)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() { l.add(driver.Network{Server: fmt.Sprint(i), Host: "b"}) })
	}
	wg.Wait()
	l.close()
	if len(got) != 51 || got[0] != "a" || slices.Contains(got[1:], "a") {
		t.Errorf("%d were written: %q", len(got), got)
	}
	l.add(driver.Network{Host: "late"})
	l.start(write)
	l.close()
	if len(got) != 51 || said.Len() != 0 {
		t.Errorf("%d were written, and %q was said", len(got), said)
	}
}

// TestNetworkLogFlood holds that one instance can't fill the journal, that others
// are not harmed by it, and that it is said how many were left out.
func TestNetworkLogFlood(t *testing.T) {
	l, said := startNetworkLog(t)
	count := map[string]int{}
	for range 20 * networkBurst {
		l.add(driver.Network{Server: "loud", Session: "ses_1"})
	}
	l.add(driver.Network{Server: "loud", Session: "ses_2"})
	l.add(driver.Network{Server: "calm", Session: "ses_1"})
	l.start(func(_ context.Context, n driver.Network) { count[n.Server+" "+n.Session]++ })
	l.close()
	if n := count["loud ses_1"]; n < networkBurst || n > 10*networkBurst || count["loud ses_2"] != 1 || count["calm ses_1"] != 1 {
		t.Errorf("written were %v", count)
	}
	if want := fmt.Sprintf("connections=%d", 20*networkBurst-count["loud ses_1"]); !strings.Contains(said.String(), want) {
		t.Errorf("%q was said, want %s", said, want)
	}
}

// TestNetworkLogNeverBlocks holds that a stuck journal delays no sandbox.
func TestNetworkLogNeverBlocks(t *testing.T) {
	l, said := startNetworkLog(t)
	stuck, moves := make(chan struct{}, 1), make(chan struct{})
	written := 0
	l.start(func(context.Context, driver.Network) {
		written++
		if written == 1 {
			stuck <- struct{}{}
			<-moves
		}
	})
	l.add(driver.Network{})
	<-stuck
	for i := range networkQueue + 100 {
		l.add(driver.Network{Server: fmt.Sprint(i)})
	}
	close(moves)
	l.close()
	if written != networkQueue+1 || !strings.Contains(said.String(), "connections=100") {
		t.Errorf("%d were written, and %q was said", written, said)
	}
}

// TestNetworkAtClose holds that connections that end with the gateway are in its
// journal, and what is shown of them.
func TestNetworkAtClose(t *testing.T) {
	cfg, err := config.Parse([]byte("servers: {web: {command: web}, quiet: {command: quiet, journal: off}, scarce: {command: scarce, journal: meta}}\n"),
		config.Options{Path: "tine.yaml", Getenv: func(string) (string, bool) { return "", false }})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Path = "" // there is no such file to watch
	state := t.TempDir()
	start := func() *service {
		t.Helper()
		s, err := newService(t.Context(), serviceOptions{
			Config: cfg, State: state, Version: "test", Redact: telemetry.NewRedactor(), Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := start()
	// A driver tells of the last ones while it is closed.
	end := s.plugins.close
	s.plugins.close = func() error {
		for _, server := range []string{"web", "quiet", "scarce"} {
			s.networks.add(driver.Network{Server: server, Host: "example.org", Port: 443, Address: "93.184.216.34:443", Allowed: true, Sent: 1, Received: 2})
		}
		return end()
	}
	s.Close()
	s = start()
	defer s.Close()
	list, err := s.journal.List(t.Context(), store.CallFilter{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range list {
		got = append(got, fmt.Sprintf("%s %s %s %s", e.Server, e.Method, e.Name, e.Params))
	}
	slices.Sort(got)
	want := []string{
		`scarce tine/network example.org:443 {"arguments":{"sent":1,"received":2}}`,
		`web tine/network example.org:443 {"arguments":{"sent":1,"received":2,"address":"93.184.216.34:443"}}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("the journal has\n%s", strings.Join(got, "\n"))
	}
}
