package remote

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/testkit"
)

const always = 1 << 30

func TestTroubleThatPasses(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		before func(http.ResponseWriter, *http.Request, []byte) bool
		after  func(*http.Request, []byte) ([]byte, bool)
	}{
		"not now":             {before: times(2, "POST /instances", refuse(503))},
		"too many":            {before: times(1, "POST /instances", refuse(429, "Retry-After", "0"))},
		"reset":               {before: times(2, "POST /instances", reset)},
		"broken off":          {after: firsts(1, nil, true)},
		"not now and not off": {before: times(1, "DELETE ", refuse(502))},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.set(func() { r.before, r.after = tt.before, tt.after })
			inst := r.start(t, r.d, r.spec())
			echo(t, inst, "hello")
			stop(t, inst)
			r.clears(t)
			if created, _ := r.counts(); created != 1 {
				t.Errorf("%d were made, want 1", created)
			}
			key := ""
			for _, req := range r.requests("POST /instances") {
				if req.URL.Path != "/instances" {
					continue
				}
				if k := req.Header.Get(headerKey); k == "" || key != "" && k != key {
					t.Errorf("the keys are %q and %q", key, k)
				} else {
					key = k
				}
			}
		})
	}
}

// firsts spoils the first n answers.
func firsts(n int, instead []byte, breaks bool) func(*http.Request, []byte) ([]byte, bool) {
	var mu sync.Mutex
	return func(*http.Request, []byte) ([]byte, bool) {
		mu.Lock()
		defer mu.Unlock()
		if n--; n < 0 {
			return nil, false
		}
		return instead, breaks
	}
}

// An error has the orchestrator's answer, and nothing is left on either side once the
// orchestrator is well.
func TestTroubleThatStays(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		before func(http.ResponseWriter, *http.Request, []byte) bool
		after  func(*http.Request, []byte) ([]byte, bool)
		words  []string
	}{
		"refused":      {before: times(always, "POST /instances", refuse(400)), words: []string{"400 Bad Request", "the disk [31m is full"}},
		"not let in":   {before: times(always, "POST /instances", refuse(401)), words: []string{"401"}},
		"broken":       {before: times(always, "POST /instances", refuse(500)), words: []string{"500", "the disk"}},
		"resets":       {before: times(always, "POST /instances", reset), words: []string{"POST", "/instances", "EOF"}},
		"long wait":    {before: times(always, "POST /instances", refuse(429, "Retry-After", "3600")), words: []string{"429"}},
		"sick":         {before: times(always, "", refuse(503)), words: []string{"503", "health"}},
		"garbage":      {after: firsts(1, []byte("<html>oops</html>"), false), words: []string{"not a list of instances", "<html>oops</html>"}},
		"empty":        {after: firsts(1, []byte("[]"), false), words: []string{"empty list"}},
		"nothing":      {after: firsts(1, []byte(""), false), words: []string{"not a list"}},
		"huge":         {after: firsts(1, []byte(`[{"remote_instance_id":"`+strings.Repeat("x", 3<<20)+`"}]`), false), words: []string{"larger than"}},
		"another path": {after: firsts(1, []byte(`[{"remote_instance_id":".."}]`), false), words: []string{"another path"}},
		"odd name":     {after: firsts(1, []byte(`[{"remote_instance_id":"a\u0000b"}]`), false), words: []string{"can't be shown"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.set(func() { r.before, r.after = tt.before, tt.after })
			_, err := r.d.Start(t.Context(), r.spec(func(s *driver.Spec) { options(*s).Attempts = 2 }))
			says(t, err, append(tt.words, `server "box"`)...)
			r.set(func() { r.before, r.after = nil, nil })
			r.clears(t)
		})
	}
}

// An error says which key of the config to look at.
func TestWhatToDoAboutIt(t *testing.T) {
	t.Parallel()
	for want, status := range map[string]int{
		"; mend servers.box.headers or auth":                    http.StatusUnauthorized,
		"; check servers.box.remote.url and remote.create":      http.StatusNotFound,
		"; check servers.box.remote.resource, and the template": http.StatusBadRequest,
	} {
		r := newRig(t)
		r.before = times(1, "POST /instances", refuse(status))
		_, err := r.d.Start(t.Context(), r.spec())
		says(t, err, `server "box": the orchestrator made no instance: `, want)
	}
	r := newRig(t)
	r.Close()
	_, err := r.d.Start(t.Context(), r.spec(func(s *driver.Spec) { options(*s).Attempts = 1 }))
	says(t, err, "; check that it runs, and servers.box.remote.url")
}

func TestAnAnswerThatNamesMore(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	more := r.make(nil)
	r.after = func(_ *http.Request, b []byte) ([]byte, bool) {
		return append(b[:len(b)-1], `,{"remote_instance_id":"`+more+`"}]`...), false
	}
	inst := r.start(t, r.d, r.spec())
	echo(t, inst, "hello")
	testkit.Eventually(t, "the removal of an instance that was not asked for", func() bool { return r.box(more) == nil })
	stop(t, inst)
	r.clears(t)
}

func TestOneThatCanNotBeReached(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, endpoint := range []string{"", "ftp://x/", ":"} {
		r.set(func() {
			r.after = func(_ *http.Request, b []byte) ([]byte, bool) {
				return []byte(strings.Replace(string(b), r.URL+"/mcp/box%2F", endpoint+"#", 1)), false
			}
		})
		if endpoint == "" {
			r.set(func() {
				r.after = func(_ *http.Request, b []byte) ([]byte, bool) {
					return []byte(strings.Replace(string(b), "mcp_endpoint_url", "other", 1)), false
				}
			})
		}
		_, err := r.d.Start(t.Context(), r.spec())
		says(t, err, "mcp_endpoint_url")
		r.clears(t)
	}
}

// An answer that comes too late, with or without keys, tells what to remove.
func TestLateAnswers(t *testing.T) {
	t.Parallel()
	for _, keyless := range []bool{false, true} {
		r := newRig(t)
		r.keyless = keyless
		answer := make(chan struct{})
		r.after = func(*http.Request, []byte) ([]byte, bool) {
			<-answer
			return nil, false
		}
		_, err := r.d.Start(t.Context(), r.spec(func(s *driver.Spec) { options(*s).Timeout = 50 * time.Millisecond }))
		says(t, err, "no answer within 50ms", "remote.timeout")
		testkit.Eventually(t, "one is there", func() bool { return r.left() == 1 }) // the request may be late, too
		close(answer)
		r.clears(t)
	}
}

// What is not removed now is removed later, and Stop says so.
func TestOneThatIsNotRemoved(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	inst := r.start(t, r.d, r.spec(func(s *driver.Spec) { options(*s).Attempts = 1 }))
	r.set(func() { r.before = times(always, "DELETE ", refuse(500)) })
	says(t, inst.Stop(t.Context()), "did not remove", "500", "the disk")
	if n := r.left(); n != 1 {
		t.Errorf("%d are there, want 1", n)
	}
	r.set(func() { r.before = nil })
	r.clears(t)
	stop(t, inst)
	if err := inst.Err(); err != nil {
		t.Errorf("a stop is no error, yet: %v", err)
	}
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	other := newOrchestra(t)
	r.before = func(w http.ResponseWriter, req *http.Request, _ []byte) bool {
		http.Redirect(w, req, other.URL+req.URL.Path+"?token="+theirs, http.StatusTemporaryRedirect)
		return true
	}
	_, err := r.d.Start(t.Context(), r.spec())
	says(t, err, "another origin")
	if seen := other.requests(""); len(seen) != 0 {
		t.Errorf("the other origin was asked: %v", seen[0].URL)
	}
	// Within the origin it is followed.
	r.set(func() {
		r.before = func(w http.ResponseWriter, req *http.Request, _ []byte) bool {
			rest, ok := strings.CutPrefix(req.URL.Path, "/old")
			if ok {
				http.Redirect(w, req, rest, http.StatusPermanentRedirect)
			}
			return ok
		}
	})
	inst := r.start(t, r.d, r.spec(func(s *driver.Spec) { options(*s).Create = "/old/instances" }))
	stop(t, inst)
	r.clears(t)
}

// Garbage that does not get better is not asked for without end.
func TestGarbageWithoutEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.after = func(*http.Request, []byte) ([]byte, bool) { return []byte("{}"), false }
	_, err := r.d.Start(t.Context(), r.spec())
	says(t, err, "names no instance")
	testkit.Eventually(t, "the end of the asking", func() bool { return strings.Contains(r.log.String(), "not looked after any more") })
	if n := len(r.requests("POST /instances")); n != 1+maxAsked {
		t.Errorf("it was asked %d times", n)
	}
}

// What was made of a snapshot by a request whose answer was lost is found though
// the snapshot is discarded at once.
func TestAChildThatNobodyHeardOf(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	spec, child := r.spec(through, snapshots, r.state("a")), r.spec(through, snapshots, r.state("b"))
	options(child).Attempts = 1
	if err := r.d.Seed(t.Context(), spec, driver.Source{}); err != nil {
		t.Fatal(err)
	}
	inst := r.start(t, r.d, spec)
	snap, err := r.d.Freeze(t.Context(), spec, inst, "")
	if err != nil {
		t.Fatal(err)
	}
	r.set(func() { r.after = firsts(1, nil, true) })
	says(t, r.d.Seed(t.Context(), child, driver.Source{From: &snap}), "broke off")
	if err := r.d.Discard(t.Context(), snap); err != nil {
		t.Errorf("discard: %v", err)
	}
	stop(t, inst)
	if err := r.d.Erase(t.Context(), spec); err != nil {
		t.Errorf("erase: %v", err)
	}
	r.clears(t)
}
