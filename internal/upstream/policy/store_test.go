package policy

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

func TestStoreIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(10, 10*(overhead+100))
		defer s.close()
		var sc scope
		put := func(i, size int) bool {
			res := &upstream.Result{Result: []byte(strings.Repeat("x", size))}
			return s.put(&sc, s.now(&sc), cacheKey{who: fmt.Sprint(i)}, res, wire.Span{}, time.Minute)
		}
		check := func(count int) {
			t.Helper()
			s.mu.Lock()
			defer s.mu.Unlock()
			var bytes int64
			for _, e := range s.m {
				bytes += e.size
			}
			if len(s.m) != count || s.used.Len() != count || len(sc.entries) != count || s.bytes != bytes || bytes > s.maxBytes {
				t.Errorf("%d entries, %d in order, %d in the scope, %d of %d bytes; want %d", len(s.m), s.used.Len(), len(sc.entries), s.bytes, bytes, count)
			}
		}
		for i := range 50 {
			put(i, 1)
			s.get(cacheKey{who: "0"}, time.Hour) // in use, so it stays
		}
		check(10)
		if e, _ := s.get(cacheKey{who: "0"}, time.Hour); e == nil {
			t.Error("the one in use went")
		}
		if put(50, 1<<20) {
			t.Error("kept more than fits")
		}
		put(51, 9*(overhead+100))
		check(1)
		time.Sleep(3 * time.Minute)
		check(0) // without a request
		s.mu.Lock()
		if s.sweeps != nil {
			t.Error("an empty store is still swept")
		}
		s.mu.Unlock()
		put(1, 1)
		put(1, 2)
		check(1)
		s.drop(&sc)
		check(0)
	})
}

func TestStoreRefusesWhatIsOld(t *testing.T) {
	s := newStore(10, 1<<20)
	defer s.close()
	var a, b scope
	res := &upstream.Result{Result: []byte("{}")}
	put := func(sc *scope, at epoch) bool {
		return s.put(sc, at, cacheKey{who: "w"}, res, wire.Span{}, time.Minute)
	}
	at, other := s.now(&a), s.now(&b)
	s.drop(&a)
	if put(&a, at) {
		t.Error("kept across a drop")
	}
	if !put(&b, other) {
		t.Error("not kept although another scope was dropped")
	}
	s.clear()
	if put(&b, other) {
		t.Error("kept across a clear")
	}
}

func TestQueueOrder(t *testing.T) {
	var q queue
	for _, who := range strings.Fields("a a a b c b a") {
		q.push(who)
	}
	q.remove(q.lines["a"].first.next) // from the middle
	q.remove(q.lines["c"].first)      // a whole line
	if l := q.longest(); l.who != "a" || l.n != 3 || q.of("b") != 2 || q.of("c") != 0 {
		t.Errorf("longest %s with %d", l.who, l.n)
	}
	var order []string
	for q.n > 0 {
		order = append(order, q.head.who)
		q.pick(q.head.first)
		if len(order) == 2 {
			q.push("d")
		}
	}
	if got, want := strings.Join(order, " "), "a b a b d a"; got != want {
		t.Errorf("served %s, want %s", got, want)
	}
	if q.head != nil || len(q.lines) != 0 {
		t.Error("something is left")
	}
}
