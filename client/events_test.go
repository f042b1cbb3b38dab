package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// feed is a gateway with events 1, 2, 3 and so on, of which each stream sends a few and
// breaks off.
type feed struct {
	mu    sync.Mutex
	each  int // a stream
	all   int
	asked []string
	fail  map[int]int // status by the number of the request
}

func (f *feed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, r.URL.RawQuery)
	if status := f.fail[len(f.asked)]; status != 0 {
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(api.Error{Kind: api.KindRefused, Message: "no", Retryable: status >= 429})
		return
	}
	if r.Header.Get("Accept") != "application/x-ndjson" {
		w.WriteHeader(http.StatusNotAcceptable)
		return
	}
	after, _ := strconv.Atoi(r.URL.Query().Get("after"))
	fmt.Fprintf(w, "{\"id\":\"%d\"}\n", after)
	for i := after + 1; i <= min(f.all, after+f.each); i++ {
		fmt.Fprintf(w, "{\"id\":\"%d\",\"type\":\"call\"}\n\n", i)
	}
	if r.URL.Query().Get("follow") == "false" {
		return
	}
	http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

func (f *feed) start(t *testing.T) *client.Client {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	c, err := client.New(client.Options{URL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func TestEventsGoOn(t *testing.T) {
	f := &feed{each: 2, all: 5, fail: map[int]int{2: 503}}
	c := f.start(t)
	var got []string
	for e, err := range c.Events(t.Context(), client.EventFilter{Types: []string{"call", "session"}, Session: "ses_1", Run: "r", Agent: "a", Last: 3}) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, e.ID); e.ID == "5" {
			break
		}
	}
	if !reflect.DeepEqual(got, []string{"1", "2", "3", "4", "5"}) {
		t.Errorf("got %v", got)
	}
	if len(f.asked) != 4 || f.asked[0] != "agent=a&last=3&run=r&session=ses_1&types=call%2Csession" || !strings.HasPrefix(f.asked[2], "after=2&") || !strings.HasPrefix(f.asked[3], "after=4&") {
		t.Errorf("asked %q", f.asked)
	}
}

func TestEventsEnd(t *testing.T) {
	all := func(ctx context.Context, f *feed, filter client.EventFilter) (n int, last error) {
		for e, err := range f.start(t).Events(ctx, filter) {
			if last = err; err == nil {
				n++
			} else if e.ID != "" {
				t.Errorf("%v comes with %+v", err, e)
			}
		}
		return n, last
	}
	if n, err := all(t.Context(), &feed{each: 9, all: 3}, client.EventFilter{Once: true}); n != 3 || err != nil {
		t.Errorf("once: %d, %v", n, err)
	}
	// A refusal ends it at first, and later unless another try can help.
	for name, c := range map[string]struct {
		fail map[int]int
		n    int
	}{"at first": {map[int]int{1: 429}, 0}, "later": {map[int]int{2: 429, 3: 403}, 1}} {
		n, err := all(t.Context(), &feed{each: 1, all: 1, fail: c.fail}, client.EventFilter{})
		if e := new(api.Error); n != c.n || !errors.As(err, &e) {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f := &feed{each: 1, all: 1}
	for _, err := range f.start(t).Events(ctx, client.EventFilter{}) {
		if err == nil {
			cancel()
		} else if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	// What is no feed is not asked again.
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "<html>") }))
	defer s.Close()
	c, err := client.New(client.Options{URL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	for _, err := range c.Events(t.Context(), client.EventFilter{}) {
		if err == nil || !strings.Contains(err.Error(), "not an event") {
			t.Error(err)
		}
	}
}

// TestEventFollower hands an event that its reader failed on over again.
func TestEventFollower(t *testing.T) {
	f := &feed{each: 3, all: 3}
	c := f.start(t)
	follower := client.EventFollower{EventFilter: client.EventFilter{Once: true}}
	var got []string
	each := func(e api.Event) error {
		if got = append(got, e.ID); len(got) == 2 {
			return errEnough
		}
		return nil
	}
	if err := follower.Run(t.Context(), c, each); !errors.Is(err, errEnough) || follower.After != "1" {
		t.Errorf("%v, after %s", err, follower.After)
	}
	if err := follower.Run(t.Context(), c, each); err != nil || !reflect.DeepEqual(got, []string{"1", "2", "2", "3"}) {
		t.Errorf("%v, %v", got, err)
	}
}
