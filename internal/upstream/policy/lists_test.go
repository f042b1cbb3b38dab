package policy_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/upstream/policy"
	"github.com/tine-mcp/tine/internal/wire"
)

func keeps(d time.Duration) config.Policy { return config.Policy{Cache: config.Cache{Lists: d}} }

var listMethods = []string{wire.MethodListTools, wire.MethodListPrompts, wire.MethodListResources, wire.MethodListTemplates}

func replies(body string) *server {
	return &server{reply: func(context.Context, *upstream.Request, int) (*upstream.Result, error) {
		return &upstream.Result{Result: []byte(body)}, nil
	}}
}

func TestListsAreKept(t *testing.T) {
	tests := []struct {
		name  string
		body  string
		lists time.Duration
		for_  time.Duration // how long it is kept; zero for not at all
	}{
		{"by the config", `{"tools":[]}`, 5 * time.Minute, 5 * time.Minute},
		{"by the server, shorter", `{"ttlMs":1000,"tools":[]}`, 5 * time.Minute, time.Second},
		{"by the server, longer", `{"ttlMs":3600000,"tools":[]}`, 5 * time.Minute, time.Hour},
		{"by the server, too long", `{"ttlMs":1e18,"tools":[]}`, 5 * time.Minute, 24 * time.Hour},
		{"not, says the server", `{"ttlMs":0,"tools":[]}`, 5 * time.Minute, 0},
		{"unreadable time", `{"ttlMs":"5","tools":[]}`, 5 * time.Minute, 0},
		{"negative time", `{"ttlMs":-5,"tools":[]}`, 5 * time.Minute, 0},
		{"two times", `{"ttlMs":5000,"tools":[],"ttlMs":5000}`, 5 * time.Minute, 0},
		{"off", `{"tools":[]}`, 0, 0},
		{"off, whatever the server says", `{"ttlMs":1000,"tools":[]}`, 0, 0},
		{"input required", `{"resultType":"input_required"}`, 5 * time.Minute, 0},
		{"complete", `{"resultType":"complete","tools":[]}`, 5 * time.Minute, 5 * time.Minute},
	}
	for _, method := range listMethods {
		for _, tt := range tests {
			t.Run(method+" "+tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					up := replies(tt.body)
					s, _ := world(t, keeps(tt.lists))
					chain := s.Chain(up, policy.ChainOptions{})
					call := func() {
						if res, err := chain.Call(t.Context(), request(t, "a", method, `{}`)); err != nil || res.Result == nil {
							t.Fatal(res, err)
						}
					}
					call()
					if tt.for_ > 0 {
						time.Sleep(tt.for_ - time.Millisecond)
						call()
						if n := up.count(method); n != 1 {
							t.Fatalf("%d requests while it holds", n)
						}
						time.Sleep(time.Millisecond)
					}
					call()
					if n := up.count(method); n != 2 {
						t.Errorf("%d requests, want 2", n)
					}
				})
			})
		}
	}
}

func TestFailuresOfListsAreNotKept(t *testing.T) {
	up := &server{}
	up.reply = func(_ context.Context, _ *upstream.Request, n int) (*upstream.Result, error) {
		switch n {
		case 1:
			return &upstream.Result{Error: []byte(`{"code":-32603,"message":"no"}`)}, nil
		case 2:
			return nil, fail(api.KindLost)
		}
		return &upstream.Result{Result: []byte(`{"tools":[]}`)}, nil
	}
	s, _ := world(t, keeps(time.Minute))
	chain := s.Chain(up, policy.ChainOptions{})
	req := request(t, "a", wire.MethodListTools, `{}`)
	if res, err := chain.Call(t.Context(), req); err != nil || res.Error == nil {
		t.Error(res, err)
	}
	if _, err := chain.Call(t.Context(), req); err == nil {
		t.Error("no error")
	}
	for range 2 {
		if res, err := chain.Call(t.Context(), req); err != nil || res.Result == nil {
			t.Error(res, err)
		}
	}
	if n := up.count("tools/list"); n != 3 {
		t.Errorf("%d requests, want 3", n)
	}
}

func TestTimeLeftIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := replies(`{"a":{"ttlMs":1},"ttlMs": 60000 ,"tools":[]}`)
		s, c := world(t, keeps(time.Minute))
		chain := s.Chain(up, policy.ChainOptions{})
		req := request(t, "a", wire.MethodListTools, `{}`)
		first, _ := chain.Call(t.Context(), req)
		time.Sleep(45 * time.Second)
		second, _ := chain.Call(t.Context(), req)
		if got, want := string(second.Result), `{"a":{"ttlMs":1},"ttlMs": 15000 ,"tools":[]}`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if got := string(first.Result); !strings.Contains(got, "60000") {
			t.Errorf("the first result became %s", got)
		}
		if hit, miss := c.get(&c.cache, "lists true"), c.get(&c.cache, "lists false"); hit != 1 || miss != 1 {
			t.Errorf("%d hits and %d misses counted", hit, miss)
		}
	})
}

// What one caller does with its result is not seen by another.
func TestResultsAreNotShared(t *testing.T) {
	up := replies(`{"tools":[]}`)
	s, _ := world(t, keeps(time.Minute))
	chain := s.Chain(up, policy.ChainOptions{})
	for range 3 {
		res, err := chain.Call(t.Context(), request(t, "a", wire.MethodListTools, `{}`))
		if err != nil || string(res.Result) != `{"tools":[]}` {
			t.Fatal(res, err)
		}
		res.Result = []byte("other")
	}
}

func TestWhatMakesAnotherList(t *testing.T) {
	base := func() *upstream.Request { return request(t, "a", wire.MethodListTools, `{"cursor":"1"}`) }
	tests := []struct {
		name string
		req  func() *upstream.Request
		same bool
	}{
		{"the same", base, true},
		{"a progress token", func() *upstream.Request {
			return request(t, "a", wire.MethodListTools, `{"cursor":"1","_meta":{"progressToken":7,"traceparent":"x"}}`)
		}, true},
		{"null meta", func() *upstream.Request { return request(t, "a", wire.MethodListTools, `{"_meta":null,"cursor":"1"}`) }, true},
		{"an edit to the same", func() *upstream.Request {
			r := request(t, "a", wire.MethodListTools, `{"cursor":"2"}`)
			r.Edits = []wire.Edit{{At: wire.Span{Start: 10, End: 13}, With: []byte(`"1"`)}}
			return r
		}, true},
		{"another cursor", func() *upstream.Request { return request(t, "a", wire.MethodListTools, `{"cursor":"2"}`) }, false},
		{"an edit of the cursor", func() *upstream.Request {
			r := base()
			r.Edits = []wire.Edit{{At: wire.Span{Start: 10, End: 13}, With: []byte(`"2"`)}}
			return r
		}, false},
		{"no cursor", func() *upstream.Request { return request(t, "a", wire.MethodListTools, `{}`) }, false},
		{"another method", func() *upstream.Request { return request(t, "a", wire.MethodListPrompts, `{"cursor":"1"}`) }, false},
		{"another principal", func() *upstream.Request { return request(t, "b", wire.MethodListTools, `{"cursor":"1"}`) }, false},
		{"no principal", func() *upstream.Request { return request(t, "", wire.MethodListTools, `{"cursor":"1"}`) }, false},
		{"meta of the client", func() *upstream.Request {
			return request(t, "a", wire.MethodListTools, `{"cursor":"1","_meta":{"acme/tenant":7}}`)
		}, false},
		{"other capabilities", func() *upstream.Request {
			r := base()
			r.Client = &upstream.Client{Key: "c", Caps: []byte(`{"roots":{}}`)}
			return r
		}, false},
		{"the other era", func() *upstream.Request {
			r := base()
			r.Client = &upstream.Client{Key: "c", Caps: client.Caps, Modern: true}
			return r
		}, false},
		{"another connection of the client", func() *upstream.Request {
			r := base()
			r.Client = &upstream.Client{Key: "d", Caps: client.Caps}
			return r
		}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			up := replies(`{"tools":[]}`)
			s, _ := world(t, keeps(time.Minute))
			chain := s.Chain(up, policy.ChainOptions{})
			for _, req := range []*upstream.Request{base(), tt.req(), base(), tt.req()} {
				if _, err := chain.Call(t.Context(), req); err != nil {
					t.Fatal(err)
				}
			}
			want := 2
			if tt.same {
				want = 1
			}
			if n := len(up.seen); n != want {
				t.Errorf("%d requests, want %d", n, want)
			}
		})
	}
}

// Private lists never reach another identity, in no case.
func TestPrivateListsNeverCross(t *testing.T) {
	var scopes sync.Map // method+cursor -> what its server says of it
	up := &server{}
	up.reply = func(_ context.Context, req *upstream.Request, n int) (*upstream.Result, error) {
		cursor := wire.FindString(req.Params.Raw, "cursor")
		scope, _ := scopes.LoadOrStore(req.Method+cursor, []string{``, `"cacheScope":"private",`, `"cacheScope":"public",`, `"cacheScope":"Public",`, `"cacheScope":null,`}[rand.IntN(5)])
		ttl := []string{``, `"ttlMs":60000,`, `"ttlMs":0,`}[rand.IntN(3)]
		return &upstream.Result{Result: fmt.Appendf(nil, `{%s%s"who":%q,"tools":[]}`, scope, ttl, req.Who)}, nil
	}
	s, c := world(t, keeps(time.Minute))
	var chains []*policy.Chain
	for i := range 4 {
		chains = append(chains, s.Chain(up, policy.ChainOptions{Own: i == 0}))
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				chain := chains[rand.IntN(len(chains))]
				who := []string{"", "a", "b", "c", "aa"}[rand.IntN(5)]
				cursor := fmt.Sprint(rand.IntN(6))
				method := listMethods[rand.IntN(len(listMethods))]
				switch rand.IntN(40) {
				case 0:
					chain.Note(wire.NoteToolsChanged)
				case 1:
					chain.Note("")
				}
				ctx, cancel := context.WithCancel(t.Context())
				if rand.IntN(10) == 0 {
					time.AfterFunc(time.Duration(rand.IntN(50))*time.Microsecond, cancel)
				}
				res, err := chain.Call(ctx, request(t, who, method, `{"cursor":"`+cursor+`"}`))
				cancel()
				if err != nil {
					continue
				}
				scope, _ := scopes.Load(method + cursor)
				if got := wire.FindString(res.Result, "who"); got != who && scope != `"cacheScope":"public",` {
					t.Errorf("%q got the list of %q with %s", who, got, scope)
				}
			}
		})
	}
	wg.Wait()
	if c.get(&c.cache, "lists true") == 0 {
		t.Error("nothing was answered from memory")
	}
}

func TestPublicListsAreShared(t *testing.T) {
	for _, own := range []bool{false, true} {
		up := replies(`{"cacheScope":"public","tools":[]}`)
		s, _ := world(t, keeps(time.Minute))
		one, two := s.Chain(up, policy.ChainOptions{Own: own}), s.Chain(up, policy.ChainOptions{Own: own})
		for _, chain := range []*policy.Chain{one, two} {
			for _, who := range []string{"a", "b", ""} {
				if _, err := chain.Call(t.Context(), request(t, who, wire.MethodListTools, `{}`)); err != nil {
					t.Fatal(err)
				}
			}
		}
		want := 1
		if own {
			want = 2
		}
		if n := up.count("tools/list"); n != want {
			t.Errorf("own %v: %d requests, want %d", own, n, want)
		}
		two.Note(wire.NoteToolsChanged)
		_, _ = one.Call(t.Context(), request(t, "a", wire.MethodListTools, `{}`))
		if n := up.count("tools/list"); n != 2 {
			t.Errorf("own %v: %d requests after the other heard of a change, want 2", own, n)
		}
	}
}

func TestNotesDropListsOfTheirKind(t *testing.T) {
	tests := []struct {
		note string
		drop []string
	}{
		{wire.NoteToolsChanged, []string{wire.MethodListTools}},
		{wire.NotePromptsChanged, []string{wire.MethodListPrompts}},
		{wire.NoteResourcesChanged, []string{wire.MethodListResources, wire.MethodListTemplates}},
		{"", listMethods},
		{wire.NoteResourceUpdated, nil},
		{wire.NoteMessage, nil},
	}
	for _, tt := range tests {
		up := replies(`{}`)
		s, _ := world(t, keeps(time.Minute))
		var kept atomic.Int64
		chain := s.Chain(up, policy.ChainOptions{Kept: func() { kept.Add(1) }})
		all := func() {
			for _, m := range listMethods {
				if _, err := chain.Call(t.Context(), request(t, "a", m, `{}`)); err != nil {
					t.Fatal(err)
				}
			}
		}
		all()
		chain.Note(tt.note)
		all()
		for _, m := range listMethods {
			want := 1
			for _, d := range tt.drop {
				if d == m {
					want = 2
				}
			}
			if n := up.count(m); n != want {
				t.Errorf("%s: %s asked for %d times, want %d", tt.note, m, n, want)
			}
		}
		if n := int(kept.Load()); n != 4+len(tt.drop) {
			t.Errorf("%s: told %d times that a list was kept", tt.note, n)
		}
	}
}

// A list that was being fetched when it changed is not cached, and callers that ask
// after the change don't get it.
func TestChangeDuringAFetch(t *testing.T) {
	for _, scope := range []string{"private", "public"} {
		for _, other := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				up := &server{}
				up.reply = func(_ context.Context, _ *upstream.Request, n int) (*upstream.Result, error) {
					if n == 1 {
						<-release
					}
					return &upstream.Result{Result: fmt.Appendf(nil, `{"n":"%d","cacheScope":%q}`, n, scope)}, nil
				}
				s, _ := world(t, keeps(time.Minute))
				chain, second := s.Chain(up, policy.ChainOptions{}), s.Chain(up, policy.ChainOptions{})
				list := func() string {
					res, err := chain.Call(t.Context(), request(t, "a", wire.MethodListTools, `{}`))
					if err != nil {
						t.Error(err)
						return ""
					}
					return wire.FindString(res.Result, "n")
				}
				first := make(chan string, 1)
				go func() { first <- list() }()
				synctest.Wait()
				if other {
					second.Note(wire.NoteToolsChanged)
				} else {
					chain.Note(wire.NoteToolsChanged)
					if got := list(); got != "2" {
						t.Errorf("%s: asked after the change, got list %s", scope, got)
					}
				}
				close(release)
				if got := <-first; got != "1" {
					t.Errorf("%s: the first asker got list %s", scope, got)
				}
				want := "2"
				if other && scope == "private" {
					want = "1" // what another connection hears is not about this one's own list
				}
				if got := list(); got != want {
					t.Errorf("%s, heard by another %v: kept list %s, want %s", scope, other, got, want)
				}
			})
		}
	}
}

func TestOneRequestForAllWhoAskAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		up := &server{reply: func(ctx context.Context, _ *upstream.Request, _ int) (*upstream.Result, error) {
			select {
			case <-release:
				return &upstream.Result{Result: []byte(`{"ttlMs":0}`)}, nil
			case <-ctx.Done():
				return nil, fail(api.KindRefused)
			}
		}}
		s, _ := world(t, keeps(time.Minute))
		chain := s.Chain(up, policy.ChainOptions{})
		var wg sync.WaitGroup
		ask := func(ctx context.Context, want bool) {
			wg.Go(func() {
				res, err := chain.Call(ctx, request(t, "a", wire.MethodListTools, `{}`))
				if (err == nil) != want || want && string(res.Result) != `{"ttlMs":0}` {
					t.Errorf("error %v", err)
				}
				if err == nil {
					res.Result = []byte("mine")
				}
			})
			synctest.Wait()
		}
		leader, leave := context.WithCancel(t.Context())
		ask(leader, false)
		for range 50 {
			ask(t.Context(), true)
		}
		follower, stop := context.WithCancel(t.Context())
		ask(follower, false)
		leave()
		stop()
		synctest.Wait()
		if n := up.count("tools/list"); n != 1 {
			t.Errorf("%d requests", n)
		}
		close(release)
		wg.Wait()
		if n := up.count("tools/list"); n != 1 {
			t.Errorf("%d requests", n)
		}
	})
}

func TestOneRequestHoweverTheyCome(t *testing.T) {
	up := replies(`{}`)
	s, _ := world(t, keeps(time.Minute))
	chain := s.Chain(up, policy.ChainOptions{})
	for i := range 200 {
		cursor := fmt.Sprintf(`{"cursor":"%d"}`, i)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { _, _ = chain.Call(t.Context(), request(t, "a", wire.MethodListTools, cursor)) })
		}
		wg.Wait()
	}
	if n := up.count("tools/list"); n != 200 {
		t.Errorf("%d requests for 200 lists", n)
	}
}

func TestAFetchNobodyWaitsForEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended, release := make(chan struct{}), make(chan struct{})
		up := &server{reply: func(ctx context.Context, _ *upstream.Request, n int) (*upstream.Result, error) {
			if n == 1 {
				<-ctx.Done()
				ended <- struct{}{}
				<-release
				return nil, fail(api.KindRefused)
			}
			return &upstream.Result{Result: []byte(`{}`)}, nil
		}}
		s, _ := world(t, keeps(time.Minute))
		chain := s.Chain(up, policy.ChainOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				_, err := chain.Call(ctx, request(t, "a", wire.MethodListTools, `{}`))
				if e := ours(t, err); e.Kind != api.KindRefused {
					t.Errorf("left with %+v", e)
				}
			})
		}
		synctest.Wait()
		cancel()
		<-ended
		wg.Wait()
		if _, err := chain.Call(t.Context(), request(t, "a", wire.MethodListTools, `{}`)); err != nil {
			t.Errorf("the next one: %v", err)
		}
		close(release)
	})
}

// The client of a fetch hears of it as long as it is there.
func TestPeerOfAFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		step := make(chan struct{})
		up := &server{reply: func(ctx context.Context, req *upstream.Request, _ int) (*upstream.Result, error) {
			for range 2 {
				<-step
				req.Peer.Note(wire.NoteProgress, nil)
				req.Peer.Ask(ctx, wire.MethodElicit, nil)
			}
			return &upstream.Result{Result: []byte(`{}`)}, nil
		}}
		s, _ := world(t, keeps(time.Minute))
		chain := s.Chain(up, policy.ChainOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		p := &peer{}
		req := request(t, "a", wire.MethodListTools, `{}`)
		req.Peer = p
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = chain.Call(ctx, req) })
		synctest.Wait()
		wg.Go(func() { _, _ = chain.Call(t.Context(), request(t, "a", wire.MethodListTools, `{}`)) })
		synctest.Wait()
		step <- struct{}{}
		synctest.Wait()
		cancel()
		synctest.Wait()
		step <- struct{}{}
		wg.Wait()
		if p.noted.Load() != 1 || p.asked.Load() != 1 {
			t.Errorf("noted %d, asked %d, want once each", p.noted.Load(), p.asked.Load())
		}
	})
}

func TestListsSetAtRunTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := replies(`{}`)
		s, _ := world(t, keeps(time.Hour))
		chain := s.Chain(up, policy.ChainOptions{})
		list := func(want int) {
			t.Helper()
			if _, err := chain.Call(t.Context(), request(t, "a", wire.MethodListTools, `{}`)); err != nil {
				t.Fatal(err)
			}
			if n := up.count("tools/list"); n != want {
				t.Errorf("%d requests, want %d", n, want)
			}
		}
		list(1)
		time.Sleep(time.Minute)
		list(1)
		s.Set(keeps(30 * time.Second))
		list(2)
		list(2)
		s.Set(keeps(0))
		list(3)
		s.Set(keeps(time.Hour)) // changes meanwhile went unseen
		list(4)
		list(4)
	})
}

func TestCloseEndsFetches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &server{reply: func(ctx context.Context, _ *upstream.Request, _ int) (*upstream.Result, error) {
			<-ctx.Done()
			return nil, fail(api.KindLost)
		}}
		s := policy.NewServer("x", keeps(time.Minute), nil, nil)
		chain := s.Chain(up, policy.ChainOptions{})
		done := make(chan struct{})
		go func() {
			if _, err := chain.Call(t.Context(), request(t, "a", wire.MethodListTools, `{}`)); err == nil {
				t.Error("no error")
			}
			close(done)
		}()
		synctest.Wait()
		s.Close()
		<-done
		if _, err := chain.Call(t.Context(), request(t, "a", wire.MethodListTools, `{}`)); err == nil {
			t.Error("a list after Close")
		}
	})
}
