//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// load is many clients that call a server as fast as it answers. Each call has a
// word of its own.
type load struct {
	url    string // of one server's view
	client *http.Client
	text   string // what every call carries besides

	made     atomic.Int64
	answered sync.Map // word to the outcome that the caller saw
	count    atomic.Int64
}

func newLoad(t testing.TB, url, text string) *load {
	tr := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(tr.CloseIdleConnections)
	return &load{url: url, client: &http.Client{Transport: tr}, text: text}
}

// kinds of calls by the tool, with the outcome that each should have.
var loadKinds = []struct{ tool, outcome string }{
	{"echo", "ok"}, {"echo", "ok"}, {"echo", "ok"}, {"fail", "tool"}, {"refuse", "tool"}, {"status", "infrastructure"},
}

// run calls with so many clients until ctx ends. A call that gets no answer ends
// its client.
func (l *load) run(ctx context.Context, clients int) {
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for ctx.Err() == nil && l.one(ctx) == nil {
			}
		})
	}
	all.Wait()
}

// one makes one call and remembers it if it was answered.
func (l *load) one(ctx context.Context) error {
	n := l.made.Add(1)
	kind := loadKinds[n%int64(len(loadKinds))]
	word := fmt.Sprintf("word-%d.", n)
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{"word":%q,"text":%q,"status":500}}}`, n, kind.tool, word, l.text)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := l.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var m message
	if err := json.NewDecoder(resp.Body).Decode(&m); err != nil {
		return err
	}
	l.answered.Store(word, kind.outcome)
	l.count.Add(1)
	return nil
}

// wait waits until so many calls were answered.
func (l *load) wait(t testing.TB, n int64) {
	t.Helper()
	if err := eventually(func() error {
		if got := l.count.Load(); got < n {
			return fmt.Errorf("%d calls answered, want %d", got, n)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// wordOf is the word of a call of the journal.
func wordOf(t testing.TB, c api.Call) string {
	if len(c.Arguments) == 0 { // a kill cut it off
		return ""
	}
	t.Helper()
	var args struct {
		Word string `json:"word"`
	}
	if err := json.Unmarshal(c.Arguments, &args); err != nil {
		t.Fatalf("arguments %s of call %s: %v", c.Arguments, c.ID, err)
	}
	return args.Word
}
