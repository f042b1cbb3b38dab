package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// A boxCrowd is many sessions with a sandbox each, under load, and what is known
// of them.
type boxCrowd struct {
	c    *client.Client
	box  *shelf
	size int
	busy int // how many of them the load is on

	mu      sync.Mutex
	members []*crowdMember
	forks   map[string]*boxFork // those that were never answered, by their label
	frozen  map[string]*crowdMember
	counts  map[string]int
	words   int
}

// boxFork is a fork that was not answered.
type boxFork struct {
	of     *crowdMember
	before holding
	count  int
}

func newBoxCrowd(c *client.Client, server string, size int) *boxCrowd {
	return &boxCrowd{c: c, box: programShelf(server), size: size, busy: size / 4, forks: map[string]*boxFork{}, frozen: map[string]*crowdMember{}, counts: map[string]int{}}
}

func (w *boxCrowd) word() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.words++
	return fmt.Sprintf("w%d", w.words)
}

func (w *boxCrowd) add(id string) *crowdMember {
	m := newCrowdMember(id, []*shelf{w.box})
	w.join(m)
	return m
}

func (w *boxCrowd) join(m *crowdMember) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.members = append(w.members, m)
}

// hot picks one of the few sessions that the load is on; the others are parked.
func (w *boxCrowd) hot(rng *rand.Rand) *crowdMember {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.members[len(w.members)-1-rng.IntN(min(w.busy, len(w.members)))]
}

// take removes one that is to be closed.
func (w *boxCrowd) take(rng *rand.Rand) *crowdMember {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := rng.IntN(len(w.members))
	m := w.members[i]
	w.members = slices.Delete(w.members, i, i+1)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = true
	return m
}

func (w *boxCrowd) full() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.members) > w.size
}

// act does one thing at random. It returns an error only where the gateway
// answered something that it should not have.
func (w *boxCrowd) act(ctx context.Context, rng *rand.Rand) error {
	m := w.hot(rng)
	what, err := "call", error(nil)
	switch n := rng.IntN(100); {
	case n < 60:
		err = m.put(ctx, w.c, w.box, w.word())
	case n < 70:
		what, err = "slow call", w.slow(ctx, m)
	case n < 76: // more than a pipe holds, so that half of it may be on its way
		what, err = "large call", w.large(ctx, m)
	case n < 84:
		what, err = "fork", w.fork(ctx, m, 1+rng.IntN(2))
	case n < 86:
		what, err = "snapshot", w.freeze(ctx, m)
	case w.full():
		what, m = "close", w.take(rng)
		err = w.c.CloseSession(ctx, m.id)
	case n < 94:
		what, err = "open", w.open(ctx)
	default:
		what, err = "open from a snapshot", w.thaw(ctx, rng)
	}
	if err != nil && kindOf(err) == nil && !errors.As(err, new(*wrongAnswer)) { // the gateway was killed
		what, err = what+" unanswered", ctx.Err()
	}
	if err != nil && m.over(err) {
		what, err = what+" too late", nil
	}
	w.mu.Lock()
	w.counts[what]++
	w.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s: %w (%+v)", what, err, kindOf(err))
	}
	return nil
}

func (w *boxCrowd) slow(ctx context.Context, m *crowdMember) error {
	word := w.word()
	m.mu.Lock()
	m.maybe[w.box.server][word] = word
	m.mu.Unlock()
	text, err := w.box.on(w.c, m.id).call(ctx, "put", object{"key": word, "value": word, "ms": 150})
	if err = expect(text, word, err); err == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.maybe[w.box.server], word)
		m.sure[w.box.server][word] = word
	}
	return err
}

// large keeps much under a key and takes it away again.
func (w *boxCrowd) large(ctx context.Context, m *crowdMember) error {
	word := w.word()
	value := strings.Repeat(word+".", 100<<10/(len(word)+1))
	m.mu.Lock()
	m.maybe[w.box.server][word] = value
	m.mu.Unlock()
	text, err := w.box.on(w.c, m.id).call(ctx, "put", object{"key": word, "value": value})
	if err = expect(text, value, err); err != nil {
		return err
	}
	// A copy that was made meanwhile may have it, so it stays among what may be.
	return w.box.drop(ctx, w.box.on(w.c, m.id), word)
}

func (w *boxCrowd) fork(ctx context.Context, m *crowdMember, count int) error {
	before, _ := m.known()
	label := w.word()
	w.mu.Lock()
	w.forks[label] = &boxFork{m, before, count}
	w.mu.Unlock()
	f, err := w.c.Fork(ctx, m.id, api.ForkRequest{Count: count, Labels: map[string]string{"fork": label}})
	if err != nil && kindOf(err) == nil {
		return err
	}
	w.mu.Lock()
	delete(w.forks, label)
	w.mu.Unlock()
	if err != nil {
		return err
	}
	for _, s := range f.Sessions {
		w.join(m.child(s.ID, before))
	}
	return nil
}

func (w *boxCrowd) freeze(ctx context.Context, m *crowdMember) error {
	before, _ := m.known()
	s, err := w.c.MakeSnapshot(ctx, m.id, api.SnapshotRequest{})
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.frozen[s.ID] = m.child("", before)
	}
	return err
}

func (w *boxCrowd) open(ctx context.Context) error {
	s, err := w.c.OpenSession(ctx, api.NewSession{Eager: true})
	if err == nil {
		w.add(s.ID)
	}
	return err
}

func (w *boxCrowd) thaw(ctx context.Context, rng *rand.Rand) error {
	w.mu.Lock()
	ids := slices.Sorted(maps.Keys(w.frozen))
	w.mu.Unlock()
	if len(ids) == 0 {
		return w.open(ctx)
	}
	id := pick(rng, ids)
	s, err := w.c.OpenSession(ctx, api.NewSession{From: id})
	if err != nil {
		return err
	}
	w.mu.Lock()
	was := w.frozen[id]
	w.mu.Unlock()
	m := newCrowdMember(s.ID, []*shelf{w.box})
	m.sure, m.maybe = was.known()
	w.join(m)
	return nil
}

// check holds sessions against what was answered: all that should be there are,
// and so many of them are asked what they know. Forks that nobody heard of are
// there as a whole or not at all.
func (w *boxCrowd) check(ctx context.Context, some float64) error {
	there, err := openSessions(ctx, w.c, client.SessionQuery{})
	if err != nil {
		return err
	}
	for label, f := range w.forks {
		var made []string
		for id, s := range there {
			if s.Labels["fork"] == label && s.Parent == f.of.id {
				made = append(made, id)
			}
		}
		if len(made) != 0 && len(made) != f.count {
			err = errors.Join(err, fmt.Errorf("of a fork into %d there are %v", f.count, made))
		}
		if len(made) > 0 {
			w.counts["unanswered fork that is whole"]++
		}
		for _, id := range made {
			w.join(f.of.child(id, f.before))
		}
	}
	clear(w.forks)
	results := make(chan error)
	places := make(chan struct{}, 6)
	asked := 0
	for i, m := range w.members {
		if _, ok := there[m.id]; !ok {
			err = errors.Join(err, fmt.Errorf("session %s is missing", m.id))
			continue
		}
		delete(there, m.id)
		if rand.Float64() >= some && i < len(w.members)-w.busy {
			continue
		}
		asked++
		go func() {
			places <- struct{}{}
			defer func() { <-places }()
			results <- m.check(ctx, w.c)
		}()
	}
	for range asked {
		err = errors.Join(err, <-results)
	}
	for id := range there { // made by a request that was never answered, or to be closed by one
		err = errors.Join(err, w.c.CloseSession(ctx, id))
	}
	return errors.Join(err, w.checkFrozen(ctx))
}

func (w *boxCrowd) checkFrozen(ctx context.Context) (err error) {
	frozen := maps.Clone(w.frozen)
	for s, lerr := range w.c.AllSnapshots(ctx, client.SnapshotQuery{}) {
		if lerr != nil {
			return lerr
		}
		if frozen[s.ID] == nil {
			err = errors.Join(err, w.c.DeleteSnapshot(ctx, s.ID))
		}
		delete(frozen, s.ID)
	}
	for id := range frozen {
		err = errors.Join(err, fmt.Errorf("snapshot %s is missing", id))
	}
	return err
}

// parkedNow counts the sandboxes that stand still.
func parkedNow(state string) (parked, live int) {
	for _, p := range boxProcesses(state) {
		if p.role != "boot" {
			continue
		}
		stands, err := standsStill(fmt.Sprintf("/proc/%d/stat", p.pid))
		switch {
		case err != nil:
		case stands:
			parked++
		default:
			live++
		}
	}
	return parked, live
}
