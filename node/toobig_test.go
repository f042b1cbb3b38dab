//go:build !race

package node_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tine-mcp/tine/node"
)

// TestTooBig has answers that are longer than the limit. The race detector makes the
// codecs too slow for them.
func TestTooBig(t *testing.T) {
	answers := func(media, before string) string {
		ts := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var m struct {
				ID     json.RawMessage
				Method string
			}
			if json.NewDecoder(r.Body).Decode(&m) != nil || m.Method == "server/discover" {
				w.WriteHeader(http.StatusMethodNotAllowed)
				return
			}
			result := `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`
			switch m.Method {
			case "tools/list":
				result = `{"tools":[{"name":"add","inputSchema":{"type":"object"}},{"name":"big","inputSchema":{"type":"object"}}]}`
			case "tools/call":
				result = `{"content":[{"type":"text","text":"` + strings.Repeat("x", 65<<20) + `"}]}`
			}
			w.Header().Set("Content-Type", media)
			fmt.Fprintf(w, `%s{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n\n", before, m.ID, result)
		}))
		return ts.URL + "/mcp"
	}
	for name, dial := range map[string]func() (mcp.Transport, error){
		"stdio":  self("flood"),
		"sse":    node.HTTP(listen(t, mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return floods() }, nil)).URL + "/sse"),
		"events": node.HTTP(answers("text/event-stream", "data: ")),
		"plain":  node.HTTP(answers("application/json", "")),
	} {
		s := connect(t, dial, nil)
		_, err := get(t, s, "big").Call(t.Context(), map[string]int{"size": 65 << 20})
		if !errors.Is(err, node.ErrOutcomeUnknown) || !strings.HasSuffix(err.Error(), "a message of the server is too long; the limit is 64 MiB") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := s.Session(t.Context()); err != nil {
			t.Errorf("%s: after that: %v", name, err)
		}
	}
}

// TestBigAtTheLimit has a result that is not too long.
func TestBigAtTheLimit(t *testing.T) {
	s := connect(t, node.HTTP(serve(t, testNodes()...)+"/mcp"), nil)
	text, err := node.Call[map[string]int, string](t.Context(), get(t, s, "big"), map[string]int{"size": 63 << 20})
	if err != nil || len(text) != 63<<20 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

// TestTooBigToSend has arguments and results that are not sent, as they are too long.
func TestTooBigToSend(t *testing.T) {
	url := serve(t, testNodes()...)
	for name, dial := range map[string]func() (mcp.Transport, error){
		"stdio": self("nodes"), "http": node.HTTP(url + "/mcp"), "sse": node.HTTP(url + "/sse"),
	} {
		s := connect(t, dial, nil)
		before, err := get(t, s, "pid").Call(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		// The SDK writes "<" as six characters.
		for _, text := range []string{strings.Repeat("x", 64<<20), strings.Repeat("<", 11<<20)} {
			args, err := json.Marshal(text)
			if err != nil {
				t.Fatal(err)
			}
			_, err = get(t, s, "odd").Call(t.Context(), json.RawMessage(`{"x":`+string(args)+`}`))
			if !errors.Is(err, node.ErrNotSent) || !strings.HasSuffix(err.Error(), "the arguments are too long; the limit of a message is 64 MiB") {
				t.Errorf("%s: %v", name, err)
			}
		}
		_, err = get(t, s, "big").Call(t.Context(), map[string]int{"size": 65 << 20})
		if !errors.Is(err, node.ErrTool) || !strings.HasSuffix(err.Error(), "the result is too long; the limit of a message is 64 MiB") {
			t.Errorf("%s: %v", name, err)
		}
		if after, err := get(t, s, "pid").Call(t.Context(), nil); err != nil || after.Text() != before.Text() {
			t.Errorf("%s: %s, %v; want %s", name, after.Text(), err, before.Text())
		}
	}
}

// TestTooBigForItsCall has a program answer one call with too much, while another one waits.
func TestTooBigForItsCall(t *testing.T) {
	s := connect(t, self("flood"), nil)
	var all sync.WaitGroup
	all.Go(func() {
		if res, err := get(t, s, "patient").Call(t.Context(), nil); err != nil || res.Text() != "done" {
			t.Error(res, err)
		}
	})
	_, err := get(t, s, "big").Call(t.Context(), nil)
	if !errors.Is(err, node.ErrOutcomeUnknown) || !strings.Contains(err.Error(), `tool "big"`) || !strings.HasSuffix(err.Error(), "a message of the server is too long; the limit is 64 MiB") {
		t.Error(err)
	}
	if _, err := get(t, s, "release").Call(t.Context(), nil); err != nil {
		t.Error(err)
	}
	all.Wait()
}
