package session

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
)

// need is what instances may use together.
type need struct {
	memory    int64
	instances int
}

func (n need) times(count int) need {
	return need{n.memory * int64(count), n.instances * count}
}

func (n need) plus(o need) need { return need{n.memory + o.memory, n.instances + o.instances} }

func (n need) minus(o need) need { return need{n.memory - o.memory, n.instances - o.instances} }

// A budget bounds what the instances of all opened sessions use together. An
// instance holds its part of it from before it starts until it has ended; a
// request that does not fit waits (see queue.go).
type budget struct {
	mu    sync.Mutex
	most  need            // zero fields for no bound
	part  int             // of most, in percent, that one principal with a name may hold
	used  need            // by instances, and by what is made ahead
	held  map[string]need // by the instances of each principal
	ahead need            // by what is made ahead of any request
	// short hears of a request that would fit if less were made ahead.
	short chan need

	lines map[string]*line // of waiting requests, by principal
	last  uint64           // the number of the last request that had to wait
	turn  *line            // the line that no other may pass for now; nil for none
}

func (b *budget) set(most need, part int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.most, b.part = most, part
	b.admit()
}

// fits reports whether so much is within the bounds beside what is used. b.mu
// is held.
func (b *budget) fits(n, used need) bool {
	return (b.most.memory <= 0 || used.memory+n.memory <= b.most.memory) &&
		(b.most.instances <= 0 || used.instances+n.instances <= b.most.instances)
}

// allowed reports whether a principal may hold so much more, so that something is
// left for others. Without auth there are no others. b.mu is held.
func (b *budget) allowed(owner string, n, held need) bool {
	if owner == "" {
		return true
	}
	n = n.plus(held)
	return (b.most.memory <= 0 || n.memory <= b.most.memory*int64(b.part)/100) &&
		(b.most.instances <= 0 || n.instances <= (b.most.instances*b.part+99)/100)
}

// share is the part of the whole that so much is, by what is scarcer. b.mu is
// held.
func (b *budget) share(n need) float64 {
	part := 0.0
	if b.most.memory > 0 {
		part = float64(n.memory) / float64(b.most.memory)
	}
	if b.most.instances > 0 {
		part = max(part, float64(n.instances)/float64(b.most.instances))
	}
	return part
}

// give takes so much for a principal. b.mu is held.
func (b *budget) give(owner string, n need) {
	if b.held == nil {
		b.held = make(map[string]need)
	}
	b.used = b.used.plus(n)
	b.held[owner] = b.held[owner].plus(n)
}

// force takes what is in use already, whatever the bounds.
func (b *budget) force(owner string, n need) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.give(owner, n)
}

func (b *budget) release(owner string, n need) {
	if n == (need{}) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used = b.used.minus(n)
	if b.held[owner] = b.held[owner].minus(n); b.held[owner] == (need{}) {
		delete(b.held, owner)
	}
	b.admit()
}

// takeAhead takes room for what is made ahead of any request, where it fits and
// no request waits.
func (b *budget) takeAhead(n need) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.lines) > 0 || !b.fits(n, b.used) {
		return false
	}
	b.used, b.ahead = b.used.plus(n), b.ahead.plus(n)
	return true
}

func (b *budget) releaseAhead(n need) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used, b.ahead = b.used.minus(n), b.ahead.minus(n)
	b.admit()
}

// missing is how much memory must be given back before so much fits, where what
// is made ahead stands in its way; zero where it does not.
func (b *budget) missing(n need) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fits(n, b.used) || !b.fits(n, b.used.minus(b.ahead)) {
		return 0
	}
	return b.used.memory + n.memory - b.most.memory
}

// A request is for room for the instances of some sessions of one kind.
type request struct {
	owner   string
	servers map[string]need // of each session
	count   int             // of sessions; zero for a server of a session that is there
}

// each is what one of the sessions needs.
func (q *request) each() need {
	var n need
	for _, one := range q.servers {
		n = n.plus(one)
	}
	return n
}

func (q *request) total() need { return q.each().times(max(1, q.count)) }

// String says what is asked for, and for which servers.
func (q *request) String() string {
	var names []string
	for id := range q.servers {
		names = append(names, id)
	}
	slices.Sort(names)
	n := q.total()
	text := fmt.Sprintf("%s and %s", bytesText(n.memory), instancesText(n.instances))
	switch {
	case q.count == 0:
		return fmt.Sprintf("server %q: it needs %s", strings.Join(names, ", "), text)
	case q.count == 1:
		return fmt.Sprintf("the session needs %s for servers: [%s]", text, strings.Join(names, ", "))
	}
	return fmt.Sprintf("%d sessions need %s for servers: [%s] of each", q.count, text, strings.Join(names, ", "))
}

// refusal says what would fit, and what helps. b.mu is held.
func (b *budget) refusal(q *request, later bool) error {
	each, fit := q.each(), math.MaxInt
	if b.most.memory > 0 && each.memory > 0 {
		fit = min(fit, int(max(0, b.most.memory-b.used.memory)/each.memory))
	}
	if b.most.instances > 0 && each.instances > 0 {
		fit = min(fit, max(0, b.most.instances-b.used.instances)/each.instances)
	}
	e := &api.Error{Kind: api.KindRefused, Status: 503, Retryable: later}
	mend := "close sessions, "
	switch q.count {
	case 0:
		for id := range q.servers {
			e.Server = id
		}
	case 1:
		mend += "open it with servers: [...] without some of these, "
	default:
		mend += "ask for fewer, "
	}
	n := q.total()
	if held := b.held[q.owner]; !b.allowed(q.owner, n, held) && (b.fits(n, b.used) || !later && b.fits(n, need{})) {
		e.Message = fmt.Sprintf("%s; you have %s and %s of the %d%% of %s and %s that one principal may have; %sor have sessions.share raised",
			q, bytesText(held.memory), instancesText(held.instances), b.part, boundText(b.most.memory), instancesText(b.most.instances), mend)
		if later {
			e.RetryAfter = int(retryRoom / time.Second)
		}
		return e
	}
	now := fmt.Sprintf("so %d of this kind would fit now", fit)
	if b.fits(n, b.used) {
		now = "which leaves room that a request which waits longer has first"
	}
	e.Message = fmt.Sprintf("%s; %s of %s and %d of %s are in use, %s; %sor raise sessions.memory and sessions.instances",
		q, bytesText(b.used.memory), boundText(b.most.memory), b.used.instances, instancesText(b.most.instances), now, mend)
	if later {
		e.RetryAfter = int(retryRoom / time.Second)
	}
	return e
}

// retryRoom is when a request that found no room may find some.
const retryRoom = 5 * time.Second

func instancesText(n int) string {
	if n == 1 {
		return "1 instance"
	}
	return fmt.Sprintf("%d instances", n)
}

// boundText is a bound of memory, which may be none.
func boundText(n int64) string {
	if n <= 0 {
		return "unbounded memory"
	}
	return bytesText(n)
}

func bytesText(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20 || n == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}
