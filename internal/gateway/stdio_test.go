package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// serveStdio runs ServeStdio on pipes and returns the client's ends.
func serveStdio(t *testing.T, w *world, server string, search bool) (in io.WriteCloser, out io.ReadCloser, ended <-chan error) {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := w.gw.ServeStdio(t.Context(), inR, outW, server, search)
		_ = outW.Close()
		done <- err
	}()
	t.Cleanup(func() { _ = inW.Close(); _ = outR.Close() })
	return inW, outR, done
}

func TestStdioBothEras(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		for server, prefix := range map[string]string{"": "t__", "t": ""} {
			t.Run(fmt.Sprintf("%s, view %q", era.name, server), func(t *testing.T) {
				s := newTalkative(t, era.upstream)
				w := open(t, servers("t", serveSDK(t, s.Server, era.upstream)))
				in, out, ended := serveStdio(t, w, server, false)
				progress := make(chan string, 16)
				cs := w.connectTransport(t, &mcp.IOTransport{Reader: out, Writer: in}, era.client, &mcp.ClientOptions{
					ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
						return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"who": "stdio"}}, nil
					},
					ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
						progress <- fmt.Sprint(r.Params.ProgressToken, r.Params.Progress)
					},
				})
				list, err := cs.ListTools(t.Context(), nil)
				if err != nil || len(list.Tools) != 9 {
					t.Fatalf("listed %v, %v", list, err)
				}
				if got := textOf(t, call(t, cs, prefix+"elicit", nil)); got != "accept stdio" {
					t.Errorf("elicited %q", got)
				}
				p := &mcp.CallToolParams{Name: prefix + "progress"}
				p.SetProgressToken("p")
				if _, err := cs.CallTool(t.Context(), p); err != nil {
					t.Fatal(err)
				}
				for i := 1; i <= 3; i++ {
					take(t, progress)
				}
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				wg.Go(func() { _, _ = cs.CallTool(ctx, &mcp.CallToolParams{Name: prefix + "wait"}) })
				take(t, s.started)
				cancel()
				take(t, s.ended)
				wg.Wait()
				_ = cs.Close()
				take(t, ended)
			})
		}
	}
}

// lines reads messages, one a line.
func lines(t *testing.T, out io.Reader) func() message {
	r := bufio.NewReader(out)
	return func() message {
		t.Helper()
		line, err := r.ReadBytes('\n')
		if err != nil {
			t.Fatalf("reading: %v", err)
		}
		m, err := parseMessage(bytes.TrimSpace(line))
		if err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		return m
	}
}

func TestStdioByHand(t *testing.T) {
	t.Parallel()
	pretty := strings.ReplaceAll(strangeResult, `, "content"`, ",\n  \"content\"")
	up := script(t, true, map[string]string{"tools/list": plainTools, "tools/call": pretty})
	w := open(t, servers("a", up.URL))
	in, out, ended := serveStdio(t, w, "a", false)
	next := lines(t, out)
	say := func(s string) {
		t.Helper()
		if _, err := io.WriteString(in, s); err != nil {
			t.Fatal(err)
		}
	}
	say("\n\r\n")
	say(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}` + "\r\n")
	if m := next(); m.Result == nil || string(m.ID) != "1" {
		t.Fatalf("initialize: %s", m.raw)
	}
	say("{\"jsonrpc\":\n")
	if m := next(); m.failure(t).Code != -32700 {
		t.Errorf("half a message: %s", m.raw)
	}
	say(`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n")
	say(`{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"echo","arguments":` + strange + `}}` + "\n")
	m := next()
	if got, want := string(m.Result), strings.ReplaceAll(pretty, "\n", " "); got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
	// Both eras on one channel, as one client probes and falls back.
	say(fmt.Sprintf(`{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{%s}}`, meta(`{}`)) + "\n")
	if m := next(); !strings.Contains(string(m.Result), modernVersion) {
		t.Errorf("discover: %s", m.raw)
	}
	say(fmt.Sprintf(`{"jsonrpc":"2.0","id":"v","method":"tools/list","params":{%s}}`, strings.Replace(meta(`{}`), modernVersion, "2099-01-01", 1)) + "\n")
	if m := next(); m.failure(t).Code != -32022 {
		t.Errorf("an unknown version: %s", m.raw)
	}
	_ = in.Close()
	if err := take(t, ended); err != nil {
		t.Errorf("the end of the input is an error: %v", err)
	}
}

// TestStdioManyAtOnce writes faster than is answered; each answer must be to its
// own request.
func TestStdioManyAtOnce(t *testing.T) {
	t.Parallel()
	s := newTalkative(t, true)
	w := open(t, servers("t", serveSDK(t, s.Server, true)))
	in, out, _ := serveStdio(t, w, "t", false)
	const n = 300
	go func() {
		for i := range n {
			_, _ = fmt.Fprintf(in, `{"jsonrpc":"2.0","id":"id-%d","method":"tools/call","params":{"name":"echo","arguments":{"n":%d,"pad":%q}}}`+"\n", i, i, strings.Repeat("x", i*7%500))
		}
	}()
	next := lines(t, out)
	seen := map[string]bool{}
	for range n {
		m := next()
		var i int
		if _, err := fmt.Sscanf(string(m.ID), `"id-%d"`, &i); err != nil {
			t.Fatalf("answered %s", m.raw)
		}
		if got := resultText(t, m); !strings.HasPrefix(got, fmt.Sprintf(`{"n":%d,`, i)) {
			t.Errorf("%s got %s", m.ID, got)
		}
		seen[string(m.ID)] = true
	}
	if len(seen) != n {
		t.Errorf("%d different answers, want %d", len(seen), n)
	}
}

// TestStdioOneShot checks what a shell pipe does: all the requests, then the end
// of input. The answers must still come.
func TestStdioOneShot(t *testing.T) {
	t.Parallel()
	up := echoServer(t, true, "one")
	w := open(t, servers("a", up.URL))
	var out bytes.Buffer
	in := `{"jsonrpc":"2.0","id":1,"method":"tools/list"}` + "\n" + `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a__one"}}` // no newline at its end
	if err := w.gw.ServeStdio(t.Context(), strings.NewReader(in), &out, "", false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"a__one"`, `"done"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in the answers: %q", want, out.String())
		}
	}
}

// TestStdioListenersDoNotHoldItUp checks that a client that goes away with a
// subscription open does not leave the gateway behind.
func TestStdioListenersDoNotHoldItUp(t *testing.T) {
	t.Parallel()
	w := open(t, servers("a", echoServer(t, false, "one").URL))
	in, out, ended := serveStdio(t, w, "a", false)
	next := lines(t, out)
	if _, err := fmt.Fprintf(in, `{"jsonrpc":"2.0","id":"L","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},%s}}`+"\n", meta(`{}`)); err != nil {
		t.Fatal(err)
	}
	if m := next(); m.Method != "notifications/subscriptions/acknowledged" {
		t.Fatalf("got %s", m.raw)
	}
	_ = in.Close()
	_, _ = io.Copy(io.Discard, out)
	if err := take(t, ended); err != nil {
		t.Error(err)
	}
}

func TestStdioEnds(t *testing.T) {
	t.Parallel()
	w := open(t, servers("a", echoServer(t, true, "one").URL))
	if err := w.gw.ServeStdio(t.Context(), strings.NewReader(""), io.Discard, "nosuch", false); err == nil || !strings.Contains(err.Error(), "nosuch") {
		t.Errorf("an unknown server: %v", err)
	}
	small := open(t, "limits: {body: 4KiB}\n"+servers("a", echoServer(t, true, "one").URL))
	long := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("x", 1<<20) + "\"}\n")
	if err := small.gw.ServeStdio(t.Context(), long, io.Discard, "", false); err == nil || !strings.Contains(err.Error(), "limits.body") {
		t.Errorf("a message over the limit: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	inR, inW := io.Pipe()
	defer inW.Close()
	done := make(chan error, 1)
	go func() { done <- w.gw.ServeStdio(ctx, inR, io.Discard, "", false) }()
	cancel()
	take(t, done)
}

// A client that sends requests and never reads their answers is cut off, before
// it has the gateway hold any number of them.
func TestStdioUnreadAnswersEndTheConnection(t *testing.T) {
	up := script(t, true, map[string]string{"tools/call": `{"content":[],"resultType":"complete","x":"` + strings.Repeat("x", 8<<20) + `"}`})
	w := open(t, servers("a", `{url: "`+up.URL+`", journal: off}`))
	in, _, ended := serveStdio(t, w, "a", false)
	go func() {
		for n := range 12 {
			if _, err := fmt.Fprintf(in, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"large","arguments":{}}}`+"\n", n); err != nil {
				return
			}
		}
	}()
	if err := take(t, ended); err == nil || !strings.Contains(err.Error(), "does not read") {
		t.Errorf("the connection ended with %v", err)
	}
}
