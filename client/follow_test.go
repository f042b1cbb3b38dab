package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// journal is a gateway's journal of calls with the ids 1, 2, 3 and so on.
type journal struct {
	mu    sync.Mutex
	calls int
	first int // the oldest one that is kept
	lag   int // how many of the newest the listing does not know yet
	// stream says what one stream sends, besides a blank line at first; it ends
	// when stream returns.
	stream func(ctx context.Context, send func(string))
	asked  []string
}

func (j *journal) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	j.mu.Lock()
	j.asked = append(j.asked, r.URL.RawQuery)
	n, first := j.calls-j.lag, j.first
	j.mu.Unlock()
	q := r.URL.Query()
	if q.Get("follow") == "1" {
		rc := http.NewResponseController(w)
		rc.Flush()
		j.stream(r.Context(), func(s string) {
			io.WriteString(w, s)
			rc.Flush()
		})
		return
	}
	if before, err := strconv.Atoi(q.Get("before")); err == nil {
		n = before - 1
	}
	limit, _ := strconv.Atoi(q.Get("limit"))
	var list api.CallList
	for ; n >= max(1, first) && len(list.Calls) < limit; n-- {
		list.Calls = append(list.Calls, api.Call{ID: strconv.Itoa(n), Server: "s"})
		list.Next = strconv.Itoa(n)
	}
	json.NewEncoder(w).Encode(list)
}

func line(id int) string { return fmt.Sprintf("{\"id\":\"%d\",\"server\":\"s\"}\n", id) }

func (j *journal) set(calls, first, lag int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.calls, j.first, j.lag = calls, first, lag
}

var errEnough = errors.New("enough")

func TestFollow(t *testing.T) {
	type round struct {
		calls, first, lag int    // of the journal when the stream opens
		stream            string // what it sends before it breaks off
		want              string
		gap               bool
	}
	span := func(from, to int) string {
		var b strings.Builder
		for i := from; i <= to; i++ {
			b.WriteString(line(i))
		}
		return b.String()
	}
	ids := func(from, to int) string {
		var all []string
		for i := from; i <= to; i++ {
			all = append(all, strconv.Itoa(i))
		}
		return strings.Join(all, " ")
	}
	for _, tt := range []struct {
		name   string
		limit  int
		rounds []round
	}{
		{"from now on", 0, []round{{calls: 50, stream: "\n\n" + line(51) + "\n" + line(52), want: "51 52"}}},
		{"the last ones first", 3, []round{{calls: 50, stream: line(51), want: "48 49 50 51"}}},
		{"what comes both ways comes once", 3, []round{{calls: 50, stream: span(49, 52), want: "48 49 50 51 52"}}},
		{"nothing there", 3, []round{{stream: line(1), want: "1"}, {calls: 3, stream: line(3), want: "2 3"}}},
		{"still nothing there", 3, []round{{}, {calls: 3, want: "1 2 3"}}},
		{"goes on after a break", 0, []round{
			{calls: 50, stream: span(51, 53), want: "51 52 53"},
			{calls: 60, stream: span(60, 61), want: "54 55 56 57 58 59 60 61"},
			{calls: 61, stream: line(62), want: "62"},
		}},
		{"over several pages", 0, []round{{calls: 50}, {calls: 1050, want: ids(51, 1050)}}},
		{"while the index lags behind", 0, []round{
			{calls: 50, stream: span(51, 80), want: ids(51, 80)},
			{calls: 82, lag: 20, stream: span(81, 83), want: "81 82 83"},
		}},
		{"more than is caught up with", 0, []round{{calls: 5}, {calls: 10105, want: ids(106, 10105), gap: true}}},
		{"dropped by the journal", 0, []round{{calls: 5}, {calls: 100, first: 98, want: "98 99 100", gap: true}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j := &journal{}
			s := httptest.NewServer(j)
			defer s.Close()
			gaps := 0
			f := client.Follower{CallQuery: client.CallQuery{Server: "s", Limit: tt.limit}, Gap: func() { gaps++ }}
			for i, r := range tt.rounds {
				j.set(r.calls, r.first, r.lag)
				j.stream = func(_ context.Context, send func(string)) { send(r.stream) }
				// Another client each time, as after a restart of the gateway.
				c, err := client.New(client.Options{URL: s.URL, HTTPClient: s.Client()})
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				err = f.Run(t.Context(), c, func(c api.Call) error { got = append(got, c.ID); return nil })
				if !errors.Is(err, io.EOF) {
					t.Errorf("round %d: %v", i, err)
				}
				if strings.Join(got, " ") != r.want || gaps == 1 != r.gap {
					t.Errorf("round %d: got %v, %d gaps; want %s, gap %v", i, got, gaps, r.want, r.gap)
				}
			}
			if !slices.Contains(j.asked, "follow=1&server=s") {
				t.Errorf("asked %q", j.asked)
			}
		})
	}
}

func TestFollowEnds(t *testing.T) {
	j := &journal{}
	hang := func(ctx context.Context, send func(string)) { send(line(1)); <-ctx.Done() }
	s := httptest.NewServer(j)
	defer s.Close()
	c, err := client.New(client.Options{URL: s.URL, HTTPClient: s.Client(), MaxBody: 1 << 17})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("by the follower", func(t *testing.T) {
		j.stream = hang
		f := client.Follower{}
		if err := f.Run(t.Context(), c, func(api.Call) error { return errEnough }); err != errEnough {
			t.Error(err)
		}
	})
	t.Run("by its context", func(t *testing.T) {
		j.stream = hang
		ctx, cancel := context.WithCancel(t.Context())
		f := client.Follower{}
		if err := f.Run(ctx, c, func(api.Call) error { cancel(); return nil }); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	for name, text := range map[string]string{
		"by what is no call":   "<html>\n",
		"by a call without id": "{}\n",
		"by one too large":     strings.Repeat("x", 1<<18),
	} {
		t.Run(name, func(t *testing.T) {
			j.stream = func(_ context.Context, send func(string)) { send(text) }
			f := client.Follower{}
			if err := f.Run(t.Context(), c, func(api.Call) error { return nil }); err == nil || errors.Is(err, io.EOF) {
				t.Error(err)
			}
		})
	}
}

func TestFollowRefused(t *testing.T) {
	c := serve(t, client.Options{HTTPClient: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(401) })
	var ae *api.Error
	f := client.Follower{}
	if err := f.Run(t.Context(), c, nil); !errors.As(err, &ae) || ae.Status != 401 {
		t.Error(err)
	}
}

// A gateway that dies after its first answer is one that was lost, however far
// the follower had come; one that was never there is not.
func TestFollowLost(t *testing.T) {
	for name, answers := range map[string]int{"never there": 0, "before the stream": 1, "before what was missed": 2} {
		t.Run(name, func(t *testing.T) {
			left := answers
			transport := roundTrip(func(r *http.Request) (*http.Response, error) {
				if left--; left < 0 {
					return nil, syscall.ECONNREFUSED
				}
				return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(`{"calls":[]}`)), Request: r}, nil
			})
			c, err := client.New(client.Options{HTTPClient: &http.Client{Transport: transport}})
			if err != nil {
				t.Fatal(err)
			}
			f := client.Follower{}
			err = f.Run(t.Context(), c, nil)
			if !errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, client.ErrBrokenOff) != (answers > 0) {
				t.Error(err)
			}
		})
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A gateway that is gone without a word is noticed, one that only has nothing
// to tell is not left, and a slow reader is not taken for silence.
func TestFollowSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		transport := roundTrip(func(r *http.Request) (*http.Response, error) {
			answer := &http.Response{StatusCode: 200, Header: http.Header{}, Request: r}
			if !r.URL.Query().Has("follow") {
				answer.Body = io.NopCloser(strings.NewReader(`{"calls":[{"id":"1"}]}`))
				return answer, nil
			}
			in, out := io.Pipe()
			go func() {
				for range 10 {
					time.Sleep(40 * time.Second)
					io.WriteString(out, "\n")
				}
				io.WriteString(out, line(2))
				<-r.Context().Done()
				out.CloseWithError(r.Context().Err())
			}()
			answer.Body = in
			return answer, nil
		})
		c, err := client.New(client.Options{HTTPClient: &http.Client{Transport: transport}})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		f := client.Follower{CallQuery: client.CallQuery{Limit: 1}}
		err = f.Run(t.Context(), c, func(c api.Call) error {
			time.Sleep(time.Hour)
			got = append(got, c.ID)
			return nil
		})
		if err == nil || !strings.Contains(err.Error(), "said nothing") || len(got) != 2 {
			t.Errorf("after %s: %v, got %v", time.Since(began), err, got)
		}
	})
}
