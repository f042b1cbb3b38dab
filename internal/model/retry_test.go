package model_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/model"
	"github.com/tine-mcp/tine/internal/model/modeltest"
	"github.com/tine-mcp/tine/internal/testkit"
)

// bubble runs a test with an endpoint in memory, in time that passes by itself.
func bubble(t *testing.T, run func(t *testing.T, s *modeltest.Server)) {
	synctest.Test(t, func(t *testing.T) { run(t, modeltest.InMemory(t)) })
}

var (
	limit     = modeltest.Reply{Status: 429, Type: "rate_limit_error", Message: "slow down", Header: map[string]string{"Retry-After": "30"}}
	fault     = modeltest.Reply{Status: 500, Type: "api_error", Message: "oops"}
	overload  = modeltest.Reply{Status: 529, Type: "overloaded_error", Message: "busy"}
	fine      = modeltest.Reply{Text: "Fine", Usage: modeltest.Usage{Input: 10, Output: 5}}
	brokenOff = modeltest.Reply{Text: "Broken", Cut: true, Usage: modeltest.Usage{Input: 10, Output: 5}}
)

func TestWhatIsRepeated(t *testing.T) {
	for _, tt := range []struct {
		name  string
		first modeltest.Reply
		want  bool
	}{
		{"rate limit", limit, true},
		{"fault", fault, true},
		{"overload", overload, true},
		{"conflict", modeltest.Reply{Status: 409}, true},
		{"broken off", brokenOff, true},
		{"error in the reply", modeltest.Reply{Text: "Ah", Fault: "overloaded_error"}, true},
		{"wrong request", modeltest.Reply{Status: 400}, false},
		{"wrong key", modeltest.Reply{Status: 401}, false},
		{"unknown model", modeltest.Reply{Status: 404}, false},
		{"fault that stays", modeltest.Reply{Status: 500, Header: map[string]string{"X-Should-Retry": "false"}}, false},
		{"no credit", modeltest.Reply{Status: 429, Type: "insufficient_quota", Code: "insufficient_quota"}, false},
	} {
		for _, name := range []string{claudeName, gptName} {
			t.Run(tt.name+"/"+name, func(t *testing.T) {
				bubble(t, func(t *testing.T, s *modeltest.Server) {
					s.Add(tt.first, fine)
					if tt.first.Fault != "" && name == gptName {
						return // it is only in streams, whose pieces can't be taken back
					}
					reply, err := open(t, s, name, model.Options{}).Ask(t.Context(), question("?"), nil)
					if tt.want != (err == nil) || tt.want != (reply.Message.Text == "Fine") {
						t.Errorf("reply %+v, error %v", reply, err)
					}
					if n := len(s.Requests()); n != map[bool]int{true: 2, false: 1}[tt.want] {
						t.Errorf("%d attempts", n)
					}
					if reply.Usage.Calls != 1 {
						t.Errorf("usage %+v", reply.Usage)
					}
				})
			})
		}
	}
}

func TestNumberOfAttempts(t *testing.T) {
	for retries, want := range map[int]int{0: 4, 1: 2, -1: 1} {
		bubble(t, func(t *testing.T, s *modeltest.Server) {
			s.Add(fault, fault, fault, fault, fault)
			e := failed(t, open(t, s, claudeName, model.Options{Retries: retries}), question("?"), nil)
			if n := len(s.Requests()); n != want || e.Kind != api.KindInfrastructure || !e.Retryable {
				t.Errorf("%d retries: %d attempts, %+v", retries, n, e)
			}
		})
	}
}

// Text that the caller has seen can't be taken back by another attempt.
func TestNothingIsSaidTwice(t *testing.T) {
	for _, name := range []string{claudeName, gptName} {
		for _, first := range []modeltest.Reply{brokenOff, {Text: "Broken", Fault: "overloaded_error"}} {
			bubble(t, func(t *testing.T, s *modeltest.Server) {
				s.Add(first, fine)
				var said strings.Builder
				e := failed(t, open(t, s, name, model.Options{}), question("?"), func(text string) { said.WriteString(text) })
				if e.Kind != api.KindInfrastructure || !e.Retryable || said.String() != "Bro" || len(s.Requests()) != 1 {
					t.Errorf("%s: %+v, said %q, %d attempts", name, e, said.String(), len(s.Requests()))
				}
			})
		}
	}
}

// What a broken attempt used is counted with the call.
func TestUsageOfBrokenAttempts(t *testing.T) {
	bubble(t, func(t *testing.T, s *modeltest.Server) {
		s.Add(brokenOff, fine)
		u := ask(t, open(t, s, claudeName, model.Options{}), question("?"), nil).Usage
		if u.InputTokens != 20 || u.OutputTokens != 6 || u.Calls != 1 {
			t.Errorf("usage %+v", u)
		}
	})
}

// All calls of a model keep to the pause that one of them was told.
func TestRetryAfter(t *testing.T) {
	for _, header := range []map[string]string{{"Retry-After": "30"}, {"Retry-After-Ms": "30000"}, {"Retry-After": "Sat, 01 Jan 2000 00:00:30 GMT"}} {
		bubble(t, func(t *testing.T, s *modeltest.Server) {
			began := time.Now()
			var mu sync.Mutex
			var times []time.Duration
			note := func(modeltest.Request) error {
				mu.Lock()
				defer mu.Unlock()
				times = append(times, time.Since(began))
				return nil
			}
			first, then := limit, fine
			first.Header, first.Check, then.Check = header, note, note
			s.Add(first, then, then)
			m := open(t, s, claudeName, model.Options{})
			var wg sync.WaitGroup
			wg.Go(func() { ask(t, m, question("1"), nil) })
			synctest.Wait()
			wg.Go(func() { ask(t, m, question("2"), nil) })
			wg.Wait()
			if len(times) != 3 || times[0] != 0 || times[1] < 30*time.Second || times[2] < 30*time.Second || times[2] > 40*time.Second {
				t.Errorf("%v: requests after %v", header, times)
			}
		})
	}
}

// A pause that is longer than the call may take is not waited for.
func TestPauseThatIsTooLong(t *testing.T) {
	bubble(t, func(t *testing.T, s *modeltest.Server) {
		long := limit
		long.Header = map[string]string{"Retry-After": "3600"}
		s.Add(long)
		m := open(t, s, claudeName, model.Options{Total: time.Minute})
		began := time.Now()
		for range 2 { // the second is not even sent
			e := failed(t, m, question("?"), nil)
			if e.Kind != api.KindRefused || e.Status != 429 || e.RetryAfter != 3600 || !e.Retryable {
				t.Errorf("error %+v", e)
			}
		}
		if time.Since(began) != 0 || len(s.Requests()) != 1 {
			t.Errorf("after %v and %d requests", time.Since(began), len(s.Requests()))
		}
	})
}

func TestCancelInAPause(t *testing.T) {
	bubble(t, func(t *testing.T, s *modeltest.Server) {
		s.Add(limit)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		began := time.Now()
		_, err := open(t, s, claudeName, model.Options{}).Ask(ctx, question("?"), nil)
		if e := asAPI(t, err); !errors.Is(err, context.Canceled) || e.Kind != api.KindRefused || time.Since(began) != time.Second {
			t.Errorf("error %v after %v", err, time.Since(began))
		}
	})
}

// An attempt that hangs is given up and made again; a call has a limit too.
func TestTimeouts(t *testing.T) {
	hang := modeltest.Reply{Hang: true}
	each(t, func(t *testing.T, name string, delta func(string)) {
		bubble(t, func(t *testing.T, s *modeltest.Server) {
			s.Add(hang, fine)
			if reply := ask(t, open(t, s, name, model.Options{Timeout: time.Minute}), question("?"), delta); reply.Message.Text != "Fine" || !reply.Usage.CostUnknown {
				t.Errorf("reply %+v", reply)
			}
		})
		bubble(t, func(t *testing.T, s *modeltest.Server) {
			s.Add(hang, hang, hang)
			_, err := open(t, s, name, model.Options{Timeout: time.Minute, Total: 150 * time.Second}).Ask(t.Context(), question("?"), delta)
			e := asAPI(t, err)
			if e.Kind != api.KindTimeout || !e.Retryable || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v", err)
			}
			testkit.Has(t, "error", e.Message, name, "2m30s", "raise the timeout")
		})
		bubble(t, func(t *testing.T, s *modeltest.Server) {
			s.Add(hang)
			e := failed(t, open(t, s, name, model.Options{Timeout: time.Minute, Retries: -1}), question("?"), delta)
			testkit.Has(t, "error", e.Message, "within 1m0s")
			if e.Kind != api.KindTimeout {
				t.Errorf("error %+v", e)
			}
		})
		bubble(t, func(t *testing.T, s *modeltest.Server) {
			s.Add(hang)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := open(t, s, name, model.Options{}).Ask(ctx, question("?"), delta)
			if e := asAPI(t, err); e.Kind != api.KindTimeout || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v", err)
			}
		})
	})
}

func TestRetriesAreLogged(t *testing.T) {
	bubble(t, func(t *testing.T, s *modeltest.Server) {
		bad := fault
		bad.Message = "the key " + testKey + " is odd"
		s.Add(bad, fine)
		var log testkit.Log
		ask(t, open(t, s, claudeName, model.Options{Log: log.Logger()}), question("?"), nil)
		if log.Count("model asked again", claudeName, "attempt=2") != 1 {
			t.Errorf("log %s", &log)
		}
		testkit.Lacks(t, "log", log.String(), testKey)
	})
}
