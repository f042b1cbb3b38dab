package everything

//lint:file-ignore SA1019 roots, sampling and logging are deprecated and still part of the protocol.

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/native/nativetest"
)

func TestToolsByCapability(t *testing.T) {
	always := []string{"echo", "get-annotated-message", "get-env", "get-resource-links", "get-resource-reference", "get-structured-content", "get-sum", "get-tiny-image", "gzip-file-as-resource", "simulate-research-query", "toggle-simulated-logging", "toggle-subscriber-updates", "trigger-long-running-operation"}
	tests := []struct {
		name string
		caps mcp.ClientCapabilities
		more []string
	}{
		{"nothing", mcp.ClientCapabilities{}, nil},
		{"roots", mcp.ClientCapabilities{RootsV2: &mcp.RootCapabilities{}}, []string{"get-roots-list"}},
		{"sampling", mcp.ClientCapabilities{Sampling: &mcp.SamplingCapabilities{}}, []string{"trigger-sampling-request"}},
		{"form", mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{}}, []string{"trigger-elicitation-request"}},
		{"url", mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{URL: &mcp.URLElicitationCapabilities{}}}, []string{"trigger-elicitation-request", "trigger-url-elicitation"}},
	}
	s := build(t, nil)
	for _, era := range nativetest.Eras() {
		for _, tt := range tests {
			t.Run(era+"/"+tt.name, func(t *testing.T) {
				cs := nativetest.Connect(t, s.Server, era, &mcp.ClientOptions{Capabilities: &tt.caps})
				want := slices.Sorted(slices.Values(append(slices.Clone(always), tt.more...)))
				if got := toolNames(t, cs); !slices.Equal(got, want) {
					t.Errorf("got %v, want %v", got, want)
				}
				for name := range needs {
					_, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: map[string]any{"prompt": "x", "url": "http://x"}})
					var we *jsonrpc.Error
					hidden := errors.As(err, &we) && strings.Contains(we.Message, "needs a capability")
					if hidden == slices.Contains(tt.more, name) {
						t.Errorf("call of %s: err = %v", name, err)
					}
				}
			})
		}
	}
}

func TestEnvironmentIsNotTheGateways(t *testing.T) {
	t.Setenv("TINE_TEST_SECRET", "do-not-show")
	for _, set := range []map[string]any{nil, {"env": map[string]any{"A": "<b>"}}} {
		cs := nativetest.Connect(t, build(t, set).Server, nativetest.Modern, nil)
		got := nativetest.Text(nativetest.Call(t, cs, "get-env", nil))
		want := "{}"
		if set != nil {
			want = "{\n  \"A\": \"<b>\"\n}"
		}
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestSettings(t *testing.T) {
	for _, bad := range []map[string]any{{"x": 1}, {"env": []string{"A=b"}}, {"env": map[string]any{"A": 1}}, {"allow_private": "no"}} {
		if _, err := New(bad); err == nil || !strings.HasPrefix(err.Error(), "settings.") {
			t.Errorf("New(%v): err = %v", bad, err)
		}
	}
}

func TestElicitation(t *testing.T) {
	for _, era := range nativetest.Eras() {
		for _, answer := range []mcp.ElicitResult{{Action: "accept", Content: map[string]any{"name": "Bo", "check": true, "integer": 7.0, "number": 1.5}}, {Action: "decline"}, {Action: "cancel"}} {
			t.Run(era+"/"+answer.Action, func(t *testing.T) {
				c := newCaller(answer)
				cs := connect(t, build(t, nil), era, c)
				res := nativetest.Call(t, cs, "trigger-elicitation-request", nil)
				text := nativetest.Text(res)
				if res.IsError || !strings.Contains(text, `"action": "`+answer.Action+`"`) {
					t.Errorf("form: %v %q", res.IsError, text)
				}
				if answer.Action == "accept" && !strings.Contains(text, "- Name: Bo\n- Agreed to terms: true\n- Favorite Integer: 7\n- Favorite Number: 1.5") {
					t.Errorf("form: %q", text)
				}
				res = nativetest.Call(t, cs, "trigger-url-elicitation", map[string]any{"url": "https://example.com/a"})
				text = nativetest.Text(res)
				if len(c.elicited) != 2 || c.elicited[1].Mode != "url" || c.elicited[1].URL != "https://example.com/a" || c.elicited[1].ElicitationID == "" {
					t.Fatalf("elicited %+v", c.elicited)
				}
				// The id that was asked with is the one that is reported, also when
				// the answer came with a second call.
				if res.IsError || !strings.Contains(text, c.elicited[1].ElicitationID) {
					t.Errorf("url: %v %q, want id %s", res.IsError, text, c.elicited[1].ElicitationID)
				}
			})
		}
	}
}

func TestURLElicitationByError(t *testing.T) {
	for _, era := range nativetest.Eras() {
		t.Run(era, func(t *testing.T) {
			// A client without a handler gets to see the error itself.
			opts := newCaller(mcp.ElicitResult{}).options()
			opts.ElicitationHandler = nil
			cs := nativetest.Connect(t, build(t, nil).Server, era, opts)
			call := func(url string) (*mcp.CallToolResult, error) {
				return cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "trigger-url-elicitation", Arguments: map[string]any{"url": url, "errorPath": true}})
			}
			required := func(err error) bool {
				var we *jsonrpc.Error
				return errors.As(err, &we) && we.Code == mcp.CodeURLElicitationRequired && strings.Contains(string(we.Data), `"elicitations"`)
			}
			for range 2 {
				if _, err := call("https://example.com/a"); !required(err) {
					t.Fatalf("first call: err = %v", err)
				}
				if _, err := call("https://example.com/b"); !required(err) {
					t.Fatalf("another call: err = %v", err)
				}
				if _, err := call("https://example.com/a"); required(err) {
					t.Fatalf("retry: err = %v", err)
				}
				if _, err := call("https://example.com/b"); required(err) {
					t.Fatalf("another retry: err = %v", err)
				}
			}
			if res := nativetest.Call(t, cs, "trigger-url-elicitation", map[string]any{"url": "no url"}); !res.IsError {
				t.Error("a bad URL is accepted")
			}
		})
	}
}

func TestFailedQuestionsAreToolErrors(t *testing.T) {
	opts := newCaller(mcp.ElicitResult{}).options()
	opts.ElicitationHandler = func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		return nil, errors.New("nobody is at home")
	}
	cs := nativetest.Connect(t, build(t, nil).Server, nativetest.Legacy, opts)
	res := nativetest.Call(t, cs, "trigger-elicitation-request", nil)
	if !res.IsError || !strings.Contains(nativetest.Text(res), "nobody is at home") {
		t.Errorf("%v %q", res.IsError, nativetest.Text(res))
	}
}

func TestSampling(t *testing.T) {
	for _, era := range nativetest.Eras() {
		c := newCaller(mcp.ElicitResult{})
		cs := connect(t, build(t, nil), era, c)
		got := nativetest.Text(nativetest.Call(t, cs, "trigger-sampling-request", map[string]any{"prompt": "p", "maxTokens": 5}))
		want := "LLM sampling result: \n{\n  \"model\": \"m<1>\",\n  \"stopReason\": \"endTurn\",\n  \"role\": \"assistant\",\n  \"content\": {\n    \"type\": \"text\",\n    \"text\": \"hi & bye\"\n  }\n}"
		if got != want {
			t.Errorf("%s: got %q, want %q", era, got, want)
		}
		if len(c.sampled) != 1 || c.sampled[0].MaxTokens != 5 {
			t.Errorf("%s: sampled %+v", era, c.sampled)
		}
	}
}

func TestRoots(t *testing.T) {
	s := build(t, nil)
	for _, era := range nativetest.Eras() {
		t.Run(era, func(t *testing.T) {
			c := newCaller(mcp.ElicitResult{})
			client := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, c.options())
			client.AddRoots(&mcp.Root{URI: "file:///a", Name: "A"})
			st, ct := mcp.NewInMemoryTransports()
			ss, err := s.Connect(t.Context(), st, nil)
			if err != nil {
				t.Fatal(err)
			}
			cs, err := client.Connect(t.Context(), ct, &mcp.ClientSessionOptions{ProtocolVersion: era})
			if err != nil {
				t.Fatal(err)
			}
			defer ss.Wait()
			defer cs.Close()
			if era == nativetest.Legacy {
				// The server asks by itself and says that it did.
				c.until(t, "the log of the roots", func() bool {
					return len(c.logged) == 1 && c.logged[0].Data == "Roots updated: 1 root(s) received from client"
				})
			}
			list := func() string { return nativetest.Text(nativetest.Call(t, cs, "get-roots-list", nil)) }
			if got := list(); !strings.HasPrefix(got, "Current MCP Roots (1 total):\n\n1. A\n   URI: file:///a\n\n") {
				t.Errorf("got %q", got)
			}
			client.AddRoots(&mcp.Root{URI: "file:///b"})
			if era == nativetest.Legacy {
				c.until(t, "the log of the new roots", func() bool { return len(c.logged) == 2 })
			}
			if got := list(); !strings.Contains(got, "(2 total)") || !strings.Contains(got, "2. Unnamed Root\n   URI: file:///b") {
				t.Errorf("got %q", got)
			}
			client.RemoveRoots("file:///a", "file:///b")
			if era == nativetest.Legacy {
				c.until(t, "the log of no roots", func() bool { return len(c.logged) == 3 })
			}
			if got := list(); !strings.Contains(got, "has given none") {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestLongOperation(t *testing.T) {
	for _, era := range nativetest.Eras() {
		c := newCaller(mcp.ElicitResult{})
		cs := connect(t, build(t, nil), era, c)
		p := &mcp.CallToolParams{Name: "trigger-long-running-operation", Arguments: map[string]any{"duration": 0.01, "steps": 4}}
		p.SetProgressToken("tok")
		res, err := cs.CallTool(t.Context(), p)
		if err != nil || nativetest.Text(res) != "Long running operation completed. Duration: 0.01 seconds, Steps: 4." {
			t.Fatalf("%s: %v, %v", era, res, err)
		}
		c.until(t, "progress", func() bool { return len(c.progress) == 4 })
		for i, n := range c.progress {
			if n.ProgressToken != "tok" || n.Progress != float64(i+1) || n.Total != 4 {
				t.Errorf("%s: progress %d: %+v", era, i, n)
			}
		}
		for _, odd := range []map[string]any{{"duration": 0, "steps": 0}, {"duration": -5, "steps": 2}, {"duration": 0, "steps": -1}, {"duration": 0.001, "steps": 1.5}} {
			if res := nativetest.Call(t, cs, "trigger-long-running-operation", odd); res.IsError {
				t.Errorf("%v: %s", odd, nativetest.Text(res))
			}
		}
		// Cancelling ends it, however long it is.
		for _, long := range []map[string]any{{"duration": 1e300, "steps": 1}, {"duration": 0, "steps": 1e15}} {
			ctx, cancel := context.WithCancel(t.Context())
			failed := make(chan error, 1)
			go func() {
				_, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "trigger-long-running-operation", Arguments: long})
				failed <- err
			}()
			cancel()
			if err := <-failed; !errors.Is(err, context.Canceled) {
				t.Errorf("%v: err = %v", long, err)
			}
		}
	}
}

func TestResearch(t *testing.T) {
	for _, era := range nativetest.Eras() {
		for _, answer := range []mcp.ElicitResult{{Action: "accept", Content: map[string]any{"interpretation": "snake"}}, {Action: "decline"}, {Action: "cancel"}} {
			c := newCaller(answer)
			cs := connect(t, build(t, nil), era, c)
			plain := nativetest.Text(nativetest.Call(t, cs, "simulate-research-query", map[string]any{"topic": "Python"}))
			if !strings.HasPrefix(plain, "# Research Report: Python\n") || strings.Contains(plain, "Meaning") || len(c.elicited) != 0 {
				t.Errorf("%s: %q", era, plain)
			}
			p := &mcp.CallToolParams{Name: "simulate-research-query", Arguments: map[string]any{"topic": "Python", "ambiguous": true}}
			p.SetProgressToken(1)
			res, err := cs.CallTool(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"accept": "Meaning: snake\n", "decline": "declined to choose", "cancel": "cancelled"}[answer.Action]
			if got := nativetest.Text(res); !strings.Contains(got, want) || len(c.elicited) != 1 {
				t.Errorf("%s %s: %q, elicited %d times", era, answer.Action, got, len(c.elicited))
			}
			c.until(t, "the last progress", func() bool {
				return len(c.progress) > 0 && c.progress[len(c.progress)-1].Message == "Done"
			})
		}
	}
	// Who can't be asked is not asked.
	cs := nativetest.Connect(t, build(t, nil).Server, nativetest.Legacy, nil)
	if got := nativetest.Text(nativetest.Call(t, cs, "simulate-research-query", map[string]any{"topic": "x", "ambiguous": true})); strings.Contains(got, "Meaning") {
		t.Errorf("%q", got)
	}
}

// TestLoggingPace runs on a false clock: one message at once, then one each
// pace, until it is switched off or the session ends.
func TestLoggingPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := newServer(nil, 5*time.Second, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		c := newCaller(mcp.ElicitResult{})
		opts := c.options()
		opts.Capabilities.RootsV2 = nil
		cs := nativetest.Connect(t, s.Server, nativetest.Legacy, opts)
		count := func() int {
			synctest.Wait()
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.logged)
		}
		if text := nativetest.Text(nativetest.Call(t, cs, "toggle-simulated-logging", nil)); !strings.HasPrefix(text, "Started") {
			t.Fatal(text)
		}
		time.Sleep(51 * time.Second)
		if n := count(); n != 11 {
			t.Errorf("%d messages, want 11", n)
		}
		if err := cs.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "error"}); err != nil {
			t.Fatal(err)
		}
		before := count()
		time.Sleep(1000 * time.Second)
		for _, m := range c.logged[before:count()] {
			if !slices.Contains([]mcp.LoggingLevel{"error", "critical", "alert", "emergency"}, m.Level) {
				t.Errorf("message of level %s", m.Level)
			}
		}
		if text := nativetest.Text(nativetest.Call(t, cs, "toggle-simulated-logging", nil)); !strings.HasPrefix(text, "Stopped") {
			t.Fatal(text)
		}
		before = count()
		time.Sleep(100 * time.Second)
		if n := count(); n != before {
			t.Errorf("%d messages after the stop", n-before)
		}
		nativetest.Call(t, cs, "toggle-simulated-logging", nil)
		cs.Close()
		synctest.Wait()
		if len(s.sessions.open) != 0 {
			t.Errorf("%d sessions are remembered", len(s.sessions.open))
		}
	})
}

func TestLoggingModern(t *testing.T) {
	c := newCaller(mcp.ElicitResult{})
	cs := connect(t, build(t, nil), nativetest.Modern, c)
	for range 20 {
		p := &mcp.CallToolParams{Name: "toggle-simulated-logging", Meta: mcp.Meta{mcp.MetaKeyLogLevel: "debug"}}
		if _, err := cs.CallTool(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	c.until(t, "a message for each call", func() bool { return len(c.logged) == 20 })
}

func TestUpdates(t *testing.T) {
	s := build(t, nil)
	for _, era := range nativetest.Eras() {
		t.Run(era, func(t *testing.T) {
			c := newCaller(mcp.ElicitResult{})
			cs := connect(t, s, era, c)
			const a, b = "demo://resource/dynamic/text/1", "demo://resource/dynamic/text/2"
			for _, uri := range []string{a, b} {
				if err := cs.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err != nil {
					t.Fatal(err)
				}
			}
			if text := nativetest.Text(nativetest.Call(t, cs, "toggle-subscriber-updates", nil)); !strings.HasPrefix(text, "Started") {
				t.Fatal(text)
			}
			c.until(t, "updates of both", func() bool {
				return slices.Contains(c.updated, a) && slices.Contains(c.updated, b) && len(c.updated) > 5
			})
			if err := cs.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: a}); err != nil {
				t.Fatal(err)
			}
			// Those on their way may still come; then only the other's do.
			c.until(t, "updates of one", func() bool {
				n := len(c.updated)
				return n > 20 && !slices.Contains(c.updated[n-5:], a)
			})
			if text := nativetest.Text(nativetest.Call(t, cs, "toggle-subscriber-updates", nil)); !strings.HasPrefix(text, "Stopped") {
				t.Fatal(text)
			}
		})
	}
}

func TestGzip(t *testing.T) {
	big := strings.Repeat("x", maxFile+1)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/file":
			io.WriteString(w, "from the web")
		case "/big":
			io.WriteString(w, big)
		}
	}))
	defer web.Close()
	s := build(t, map[string]any{"allow_private": true})
	c := newCaller(mcp.ElicitResult{})
	cs := connect(t, s, nativetest.Legacy, c)
	zip := func(cs *mcp.ClientSession, args map[string]any) *mcp.CallToolResult {
		return nativetest.Call(t, cs, "gzip-file-as-resource", args)
	}
	for data, want := range map[string]string{
		"data:text/plain;base64,aGVsbG8=":      "hello",
		"data:text/plain;base64,aGVsbG8":       "hello",
		"data:;base64,aGVs%0abG8%3D":           "hello",
		"data:,a%20b+c":                        "a b+c",
		"DATA:text/plain;charset=utf-8,%C3%BC": "ü",
		"data:,":                               "",
		web.URL + "/file":                      "from the web",
	} {
		res := zip(cs, map[string]any{"name": "f.gz", "data": data})
		if res.IsError {
			t.Errorf("%s: %s", data, nativetest.Text(res))
			continue
		}
		link := res.Content[0].(*mcp.ResourceLink)
		read, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: link.URI})
		if err != nil {
			t.Fatal(err)
		}
		if got := unzip(t, read.Contents[0].Blob); got != want {
			t.Errorf("%s: %q, want %q", data, got, want)
		}
		res = zip(cs, map[string]any{"name": "f.gz", "data": data, "outputType": "resource"})
		if got := unzip(t, res.Content[0].(*mcp.EmbeddedResource).Resource.Blob); got != want {
			t.Errorf("%s embedded: %q, want %q", data, got, want)
		}
	}
	c.until(t, "the changed list", func() bool { return c.changed > 0 })
	for _, bad := range []string{"nope", "ftp://x/y", "file:///etc/passwd", "data:nocomma", "data:,%zz", "data:;base64,!!!!", "http://", web.URL + "/big", "data:," + big} {
		if res := zip(cs, map[string]any{"data": bad}); !res.IsError {
			t.Errorf("%.50s is accepted", bad)
		}
	}
	for _, bad := range []string{"", "%zz", "a\x7f"} {
		if res := zip(cs, map[string]any{"name": bad, "data": "data:,x"}); !res.IsError {
			t.Errorf("name %q is accepted", bad)
		}
	}
	// Only the newest are kept.
	for i := range maxZipped + 10 {
		zip(cs, map[string]any{"name": "n" + number(float64(i)), "data": "data:,x"})
	}
	list, err := cs.ListResources(t.Context(), nil)
	if err != nil || len(list.Resources) != 7+maxZipped {
		t.Errorf("%d resources, %v", len(list.Resources), err)
	}
	if _, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "demo://resource/session/n0"}); err == nil {
		t.Error("the oldest is still there")
	}

	guarded := nativetest.Connect(t, build(t, nil).Server, nativetest.Modern, nil)
	if res := zip(guarded, map[string]any{"data": web.URL + "/file"}); !res.IsError || !strings.Contains(nativetest.Text(res), "not a public address") {
		t.Errorf("loopback: %v %s", res.IsError, nativetest.Text(res))
	}
}

func TestZippedBytesAreBounded(t *testing.T) {
	s := build(t, nil)
	chunk := make([]byte, maxZippedBytes/4)
	for _, name := range []string{"a", "b", "c", "d", "e", "b", "f"} {
		if _, err := s.keep(name, chunk); err != nil {
			t.Fatal(err)
		}
	}
	if s.zipped.bytes > maxZippedBytes || len(s.zipped.made) != 4 {
		t.Errorf("%d bytes in %d resources", s.zipped.bytes, len(s.zipped.made))
	}
	if _, err := s.keep("huge", make([]byte, maxZippedBytes+1)); err != nil || len(s.zipped.made) != 1 {
		t.Errorf("%d resources, %v", len(s.zipped.made), err)
	}
}

func TestDocuments(t *testing.T) {
	cs := nativetest.Connect(t, build(t, nil).Server, nativetest.Modern, nil)
	list, err := cs.ListResources(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list.Resources {
		res, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: r.URI})
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile("docs/" + r.Name)
		if err != nil || res.Contents[0].Text != string(want) || res.Contents[0].MIMEType != "text/markdown" {
			t.Errorf("%s: %+v, %v", r.URI, res.Contents[0], err)
		}
	}
	if cs.InitializeResult().Instructions == "" {
		t.Error("no instructions")
	}
	for _, bad := range []string{"demo://resource/dynamic/text/x", "demo://resource/dynamic/text/0", "demo://resource/dynamic/text/-1", "demo://resource/dynamic/blob/1.5", "demo://resource/dynamic/blob/", "demo://nothing"} {
		if _, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: bad}); err == nil {
			t.Errorf("%s can be read", bad)
		}
	}
}
