package main

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
)

func TestTail(t *testing.T) {
	tests := []struct {
		name  string
		looks []string
		added []string
		gaps  []bool
	}{
		{"grows", []string{"a\n", "a\nb\n", "a\nb\n"}, []string{"a\n", "b\n", ""}, []bool{false, false, false}},
		{"a line grows", []string{"a", "ab", "ab\n"}, []string{"a", "b", "\n"}, []bool{false, false, false}},
		{"window moves", []string{"1\n22\n333\n", "2\n333\n4\n"}, []string{"1\n22\n333\n", "4\n"}, []bool{false, false}},
		{"window is left behind", []string{"1\n2\n", "8\n9\n"}, []string{"1\n2\n", "8\n9\n"}, []bool{false, true}},
		{"begins anew", []string{"1\n2\n3\n", "a\n"}, []string{"1\n2\n3\n", "a\n"}, []bool{false, false}},
		{"emptied", []string{"1\n", "", "2\n"}, []string{"1\n", "", "2\n"}, []bool{false, false, false}},
		{"half a character at the end", []string{"a\ufffd", "aé\n"}, []string{"a", "é\n"}, []bool{false, false}},
		{"half a character at the start", []string{"éa\nb\n", "\ufffda\nb\nc\n"}, []string{"éa\nb\n", "c\n"}, []bool{false, false}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var tl tail
			for i, now := range tt.looks {
				added, gap := tl.next(now)
				if added != tt.added[i] || gap != tt.gaps[i] {
					t.Errorf("look %d: got %q, gap %v; want %q, %v", i, added, gap, tt.added[i], tt.gaps[i])
				}
			}
		})
	}
}

func FuzzOverlap(f *testing.F) {
	f.Add("abcab", "abd")
	f.Add("aaaa", "aa")
	f.Add("", "x")
	f.Add("x", "")
	f.Fuzz(func(t *testing.T, a, b string) {
		want := 0
		for n := min(len(a), len(b)); n > 0; n-- {
			if strings.HasSuffix(a, b[:n]) {
				want = n
				break
			}
		}
		if got := overlap(a, b); got != want {
			t.Errorf("overlap(%q, %q) = %d, want %d", a, b, got, want)
		}
	})
}

// script answers the looks of a follower one after the other, and interrupts it
// when they are used up.
type script struct {
	mu    sync.Mutex
	looks []func() (any, *api.Error)
	end   context.CancelFunc
}

func (s *script) next(string, int64) (any, *api.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	look := s.looks[0]
	if len(s.looks) > 1 {
		s.looks = s.looks[1:]
	} else {
		s.end()
	}
	return look()
}

func entries(pairs ...string) func() (any, *api.Error) {
	return func() (any, *api.Error) {
		var l api.LogList
		for i := 0; i < len(pairs); i += 2 {
			l.Instances = append(l.Instances, api.LogEntry{Instance: pairs[i], Text: pairs[i+1]})
		}
		return l, nil
	}
}

func TestFollow(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	away := func() (any, *api.Error) {
		return nil, &api.Error{Kind: api.KindRefused, Message: "draining", Retryable: true, Status: 503}
	}
	s := &script{end: cancel, looks: []func() (any, *api.Error){
		entries("a", "one\ntwo\n"),
		entries("a", "one\ntwo\nthree"),
		away, away,
		entries("a", "one\ntwo\nthree\n", "b", "hello\n"),
		entries("b", "hello\nagain\n"),
		entries("a", "new\n", "b", "hello\nagain\n"),
		entries("a", "new\n", "b", "hello\nagain\n"),
	}}
	tc := newTestCLI(t, "logs", "x", "--follow", "--bytes", "4")
	tc.env["TINE_URL"] = (&fakeGateway{logs: s.next}).start(t)
	tick := make(chan time.Time)
	close(tick)
	tc.after = func(time.Duration) <-chan time.Time { return tick }
	code := tc.cli.run(ctx)
	want := "two\nthree\n\n==> b <==\nhello\nagain\n==> a <==\nnew\n"
	if code != 0 || tc.out.String() != want {
		t.Errorf("exit %d, printed %q; want %q", code, tc.out.String(), want)
	}
	if n := strings.Count(tc.err.String(), "draining; waiting for it"); n != 1 {
		t.Errorf("told %d times that the gateway is away: %s", n, tc.err.String())
	}
}

// What an instance wrote before it failed is printed once, and the next one of its
// name begins anew.
func TestFollowAFailure(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := func(text string) api.LogEntry {
		return api.LogEntry{Instance: "a", Session: "ses_1", Ended: time.Date(2026, 11, 17, 7, 0, 0, 0, time.Local), Text: text}
	}
	list := func(all ...api.LogEntry) func() (any, *api.Error) {
		return func() (any, *api.Error) { return api.LogList{Instances: all}, nil }
	}
	s := &script{end: cancel, looks: []func() (any, *api.Error){
		entries("a", "one\ntwo\n"),
		list(failed("one\ntwo\nlast words\n")),
		list(failed("one\ntwo\nlast words\n"), api.LogEntry{Instance: "a", Text: "one\n"}),
		list(failed("one\ntwo\nlast words\n"), api.LogEntry{Instance: "a", Text: "one\nthree\n"}),
		list(failed("one\ntwo\nlast words\n"), api.LogEntry{Instance: "a", Text: "one\nthree\n"}),
	}}
	tc := newTestCLI(t, "logs", "x", "--follow")
	tc.env["TINE_URL"] = (&fakeGateway{logs: s.next}).start(t)
	tick := make(chan time.Time)
	close(tick)
	tc.after = func(time.Duration) <-chan time.Time { return tick }
	code := tc.cli.run(ctx)
	want := "one\ntwo\n==> a of session ses_1, which failed at 2026-11-17 07:00:00 <==\nlast words\n==> a <==\none\nthree\n"
	if code != 0 || tc.out.String() != want || tc.err.String() != "" {
		t.Errorf("exit %d, printed %q; want %q; %s", code, tc.out.String(), want, tc.err.String())
	}
}

func TestFollowEndsWhenRefused(t *testing.T) {
	s := &script{end: func() {}, looks: []func() (any, *api.Error){
		entries("a", "one"),
		func() (any, *api.Error) { return nil, notFound("server x") },
	}}
	tc := newTestCLI(t, "logs", "x", "-f")
	tc.env["TINE_URL"] = (&fakeGateway{logs: s.next}).start(t)
	tick := make(chan time.Time)
	close(tick)
	tc.after = func(time.Duration) <-chan time.Time { return tick }
	if code := tc.cli.run(t.Context()); code != exitUsage || tc.out.String() != "one\n" {
		t.Errorf("exit %d, printed %q, %s", code, tc.out.String(), tc.err.String())
	}
}
