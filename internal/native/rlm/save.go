package rlm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
)

// The variables that can be pickled are saved into the kernel's state: some time after a
// change, before a fork that carries files, and when the kernel ends in order. A driver
// that keeps memory needs that only where the kernel ends otherwise. Only a kernel reads
// what a kernel wrote.

const (
	// savedFor is how long what was saved is worth something.
	savedFor = 7 * 24 * time.Hour
	// saveTime bounds saving and restoring, and closeTime the saving at the end.
	saveTime  = 10 * time.Minute
	closeTime = 25 * time.Second
)

// A lost is what a kernel could not bring back.
type lost struct {
	At      float64           `json:"at"`           // when it was saved, in seconds; 0 for never
	Newer   []string          `json:"newer"`        // names that changed since, the first of them
	Count   int               `json:"count"`        // of all of them
	Ran     bool              `json:"ran"`          // code has called something since, which may have changed more
	Left    map[string]string `json:"left"`         // names that could not be saved, and why
	Absent  map[string]string `json:"absent"`       // names that were saved and need what is not here, and why: the first of them
	Lacking int               `json:"absent_count"` // of all of them
	Expired bool              `json:"expired"`
	Broken  string            `json:"broken"`
}

func (l *lost) String() string {
	var says []string
	say := func(format string, args ...any) { says = append(says, fmt.Sprintf(format, args...)) }
	switch {
	case l.Broken != "":
		say("the saved variables can't be read (%s), so none is there", l.Broken)
	case l.Expired:
		say("the saved variables are from %s, which is too long ago, so none is there", when(l.At))
	case l.At > 0:
		say("variables are as they were saved at %s", when(l.At))
	default:
		say("no variables had been saved")
	}
	if l.Count > 0 {
		names := strings.Join(l.Newer, ", ")
		if more := l.Count - len(l.Newer); more > 0 {
			names += fmt.Sprintf(" and %d more", more)
		}
		say("gone is what changed since, or may have: %s", names)
	}
	if l.Ran && l.Count > 0 {
		say("gone is also what functions and threads changed since")
	} else if l.Ran {
		say("gone is what functions and threads changed since")
	}
	if len(l.Left) > 0 {
		say("gone is what can't be saved: %s", reasons(l.Left))
	}
	if len(l.Absent) > 0 {
		names := reasons(l.Absent)
		if more := l.Lacking - len(l.Absent); more > 0 {
			names += fmt.Sprintf(" and %d more", more)
		}
		say("not back is what can't be used here, and it is kept until it can be: %s", names)
	}
	return strings.Join(says, "; ")
}

// reasons are names, each with why.
func reasons(of map[string]string) string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		names = append(names, fmt.Sprintf("%s (%s)", name, of[name]))
	}
	return strings.Join(names, ", ")
}

func when(seconds float64) string {
	return time.Unix(int64(seconds), 0).UTC().Format("2006-01-02 15:04:05 UTC")
}

// pending is what a kernel says of itself.
type pending struct {
	Lost     *lost   `json:"lost"`
	Dirty    bool    `json:"dirty"`
	Cut      *string `json:"cut"`      // code that was interrupted for no caller
	Restored int     `json:"restored"` // variables that are back
	At       float64 `json:"at"`       // when those were saved, in seconds
}

// String says how it stands with the variables after a restart.
func (p *pending) String() string {
	switch {
	case p.Lost != nil:
		return p.Lost.String()
	case p.Restored > 0:
		return fmt.Sprintf("all variables are back, as they were saved at %s", when(p.At))
	}
	return "it had no variables"
}

// meet learns how it stands with a kernel: a fresh one gets back what was saved.
func (s *server) meet(ctx context.Context, fresh bool) error {
	ask := map[string]any{"op": "pending"}
	if fresh {
		ask = s.restoring()
	}
	var p pending
	if err := s.ask1(ctx, ask, &p); err != nil {
		return err
	}
	began := "the kernel was started anew"
	changed := fresh && s.env.Anew != nil && s.env.Anew()
	if changed {
		began += ", as its Python, its packages or this system have changed"
	}
	switch {
	case p.Lost != nil:
		s.owe(began + "; " + p.String())
	case changed:
		s.tellLater(began + "; " + p.String())
	}
	if p.Cut != nil {
		s.owe(fmt.Sprintf("code was interrupted, as its client left or the gateway ended while it ran: %s; variables are as it left them", *p.Cut))
	}
	if p.Dirty {
		s.changed()
	}
	return nil
}

func (s *server) restoring() map[string]any {
	return map[string]any{"op": "restore", "oldest": time.Now().Add(-savedFor).Unix()}
}

// tellLater has something told with the next result.
func (s *server) tellLater(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.note != "" {
		what = s.note + "; " + what
	}
	s.note = what
}

// owe has the next caller told that variables are gone.
func (s *server) owe(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owed != nil {
		what = s.owed.Error() + "; " + what
	}
	s.owed = s.lostError(what)
}

func (s *server) lostError(what string) error {
	return &api.Error{Kind: api.KindLost, Server: s.env.Server, Message: what}
}

// recover brings back what was saved after a worker has ended, and returns the error
// that says so.
func (s *server) recover(ctx context.Context, why string) error {
	ctx = context.WithoutCancel(ctx)
	var p pending
	err := s.ask1(ctx, s.restoring(), &p)
	if err != nil {
		p.Lost = &lost{Broken: err.Error()}
		err = s.ask1(ctx, map[string]any{"op": "forget"}, nil)
	}
	if errors.Is(err, errEnded) {
		return err
	}
	s.tell(true)
	return s.lostError(why + "; " + p.String())
}

// tell says that a caller is being told of a loss, and returns whether one was before. The
// kernel hears that it was told with the next call, or when the client leaves: a gateway
// that is killed before the caller has the error leaves it to the next one.
func (s *server) tell(now bool) (before bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, s.telling = s.telling, now
	return before
}

// told has the kernel know what callers were told.
func (s *server) told(ctx context.Context) {
	if !s.tell(false) {
		return
	}
	if err := s.ask1(ctx, map[string]any{"op": "told"}, nil); err != nil {
		s.env.Log.Debug("a kernel does not know that its loss was told", "server", s.env.Server, "err", err)
	}
}

// due is what a caller is told instead of an answer, once.
func (s *server) due(ctx context.Context) error {
	s.told(context.WithoutCancel(ctx))
	if fell := s.kernel.fallen(); fell != nil {
		return s.recover(ctx, fell.Error())
	}
	s.mu.Lock()
	owed := s.owed
	s.owed = nil
	s.mu.Unlock()
	if owed == nil {
		return nil
	}
	s.tell(true)
	return owed
}

// ask1 asks the kernel something that no caller asked for.
func (s *server) ask1(ctx context.Context, ask map[string]any, into any) error {
	return s.askBy(ctx, s.kernel.do, ask, into)
}

// A doer makes a request, as branch.do does.
type doer func(ctx context.Context, timeout time.Duration, request map[string]any, output func(string, bool)) (json.RawMessage, bool, error)

func (s *server) askBy(ctx context.Context, do doer, ask map[string]any, into any) error {
	if p, ok := s.env.Body.Instance.(driver.Parker); ok {
		p.Acquire()
		defer p.Release()
	}
	done, restarted, err := do(ctx, saveTime, ask, nil)
	if restarted {
		err = errors.New("it hangs")
	}
	if err != nil {
		return err
	}
	var failed struct {
		Error *string `json:"error"`
	}
	if err := json.Unmarshal(done, &failed); err != nil {
		return err
	}
	if failed.Error != nil {
		lines := strings.Split(*failed.Error, "\n")
		return errors.New(lines[len(lines)-1])
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(done, into)
}

// changed has the variables saved after a while.
func (s *server) changed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dirty || s.closed {
		return
	}
	s.dirty = true
	s.timer = time.AfterFunc(time.Duration(s.set.Save), func() { s.saved(s.Save(context.Background())) })
}

// saved has variables saved later where that failed now.
func (s *server) saved(err error) {
	if err != nil && !errors.Is(err, errEnded) {
		s.env.Log.Warn("variables of a kernel were not saved", "server", s.env.Server, "session", s.env.Session, "err", err)
		s.changed()
	}
}

// Save writes the variables into the state, where there is something new. When it returns
// no other save runs.
func (s *server) Save(ctx context.Context) error {
	select {
	case s.saving <- struct{}{}:
		defer func() { <-s.saving }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return s.save(ctx, s.kernel.do)
}

func (s *server) save(ctx context.Context, do doer) error {
	s.mu.Lock()
	dirty := s.dirty
	s.dirty = false
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	if !dirty {
		return nil
	}
	err := s.askBy(ctx, do, map[string]any{"op": "save"}, nil)
	if err != nil {
		s.mu.Lock()
		s.dirty = s.dirty || s.closed
		s.mu.Unlock()
	}
	return err
}

// Close implements [io.Closer].
func (s *server) Close() error {
	if s.models.forget != nil {
		defer s.models.forget()
	}
	if s.kernel == nil {
		return nil
	}
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	s.told(ctx)
	var err error
	if _, kept := s.env.Body.Instance.(driver.Suspender); !kept || s.env.SaveAtEnd {
		var p pending // a call that was cut off may not have said so
		if s.ask1(ctx, map[string]any{"op": "pending"}, &p) == nil && p.Dirty {
			s.mu.Lock()
			s.dirty = true
			s.mu.Unlock()
		}
		if err = s.Save(ctx); errors.Is(err, errEnded) {
			err = nil
		}
	}
	s.mu.Lock()
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	return errors.Join(err, s.kernel.Close())
}
