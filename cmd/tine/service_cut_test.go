package main

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/store/journal"
	"github.com/tine-mcp/tine/internal/store/sqlite"
	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/testkit"
)

// TestCutCallsAreWrittenDown stops a gateway that has running calls and no
// time to wait for them. They are in the journal all the same.
func TestCutCallsAreWrittenDown(t *testing.T) {
	const calls = 8
	// What takes a while to be written down.
	args := `{"x":["` + strings.Repeat(`a=b","`, 300_000) + `"]}`
	started := make(chan struct{}, calls)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			ID     json.RawMessage
			Method string
		}
		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &in)
		if in.Method == "tools/call" {
			started <- struct{}{}
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(in.ID)+`,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"up","version":"1"}},"ttlMs":0,"cacheScope":"public"}}`)
	}))
	defer up.Close()
	cfg, err := config.Parse([]byte("listen: 127.0.0.1:0\nlimits: {drain: 1ms}\nservers: {a: {url: \""+up.URL+"\", journal: full}}\n"),
		config.Options{Path: "tine.yaml", Getenv: func(string) (string, bool) { return "", false }})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Path = "" // there is no such file to watch
	state := t.TempDir()
	log := slog.New(slog.DiscardHandler)
	s, err := newService(t.Context(), serviceOptions{Config: cfg, State: state, Listen: true, Version: "test", Redact: telemetry.NewRedactor(), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	var wg sync.WaitGroup
	for range calls {
		wg.Go(func() {
			resp, err := (&http.Client{Transport: tr}).Post(s.url+"/mcp/a", "application/json",
				strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":`+args+`}}`))
			if err == nil {
				_ = resp.Body.Close()
			}
		})
	}
	for range calls {
		testkit.Within(t, "a call gets to the server", started)
	}
	stop()
	if err := <-ran; err != nil {
		t.Fatal(err)
	}
	s.Close()
	wg.Wait()

	db, err := sqlite.Open(t.Context(), databaseOf(state))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	j, err := journal.Open(t.Context(), journal.Options{Dir: filepath.Join(state, "journal"), Index: db, MaxAge: time.Hour, MaxSize: 1 << 30, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	got, err := j.List(t.Context(), store.CallFilter{Server: "a", Limit: 2 * calls})
	if err != nil || len(got) != calls {
		t.Errorf("%d of %d calls are written down, %v", len(got), calls, err)
	}
}
