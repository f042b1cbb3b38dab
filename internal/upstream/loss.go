package upstream

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/wire"
)

// A server that ends loses its memory. The next instance would answer as if nothing
// had happened, so every end of an instance that was called is reported before
// another one is started: its sessions are marked, and the first call of each after
// the end fails and says so, unless a call that was running has said so already. No
// call is repeated on another instance.

// Memory says what happens to a server's memory when its instance ends, and who is
// notified. The zero value is for servers without memory.
type Memory struct {
	// Kept is what the next instance begins with: api.KeptNothing, or api.KeptFiles
	// where the server has declared state. Empty where nothing can be lost.
	Kept string
	// Recalls says that the server remembers in its memory even if files are kept:
	// its end is reported.
	Recalls bool
	// Several says that more sessions than one use the instance. Their calls are
	// told apart by Request.Session.
	Several bool
	// Alone says that one session has the instance, and never shares it with its
	// forks: what the server writes to its standard error is that session's.
	Alone bool
	// Reached says that the server is not run but reached: its memory belongs to
	// the session that it gave us, if it did.
	Reached bool
	// Lost is called with a loss. It returns when the loss is recorded.
	Lost func(Loss)
	// Owed returns the error that a session must get before its next call is sent,
	// once; nil for none. Told says that the session got it otherwise.
	Owed func(session string) error
	Told func(session string)
	// Follows says what a loss means for the next calls of a session; nil or empty if
	// they begin anew.
	Follows func(session string) string
	// Unfit is called when a call of a session finds a memory in its server's state
	// that does not fit, and returns the error for the session; nil if the session
	// got it before, and the call begins anew. Fits is called at every start, with
	// its memory or anew.
	Unfit func(session, why string) error
	Fits  func(anew bool)
	// Uses is called before every call of a session is sent; may be nil.
	Uses func(session string)
	// Called is called before the first call of a session to an instance that the
	// next gateway can't adopt: its death is a loss from then on.
	Called func(session string)
}

// A Loss is the end of an instance together with what its server had in memory.
type Loss struct {
	Why   string
	Words string // what the server wrote before; empty where several sessions use it
	Kept  string
	// Sessions have called the instance; for one of a single session that is the
	// empty name. With All there are too many to name.
	Sessions []string
	All      bool
	// Tell says that the next call of each session must report the loss, except for
	// the sessions in Told.
	Tell bool
	Told map[string]bool
	// Ours says that the gateway itself ended the instance.
	Ours bool
	// Unfit says that the memory is still there and does not fit: each session that
	// calls gets the error, and what is lost may be back by then.
	Unfit bool
}

// maxCallers bounds the sessions that are recorded as callers of an instance.
const maxCallers = 1000

// uses records which sessions have called an instance since it started, and which
// know of its end.
type uses struct {
	mu      sync.Mutex
	called  bool // a call was sent, or is about to be
	made    bool // a call was made, with any outcome
	all     bool
	callers map[string]bool
	told    map[string]bool
}

// of begins with the callers that a stored handshake names.
func (s *uses) of(h *Hello) {
	s.called, s.made, s.all, s.callers = !h.Uncalled, !h.Uncalled, h.AllCalled, make(map[string]bool, len(h.Callers))
	for _, id := range h.Callers {
		s.callers[id] = true
	}
}

// note adds a caller and reports whether it is new.
func (s *uses) note(session string, several bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !several && s.called, s.called && (s.all || s.callers[session]):
		return false
	case several && len(s.callers) >= maxCallers:
		s.all, s.callers = true, nil
	case several:
		if s.callers == nil {
			s.callers = make(map[string]bool)
		}
		s.callers[session] = true
	}
	s.called = true
	return true
}

// makes records that a call was made.
func (s *uses) makes() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made = true
}

// wasMade reports whether a call was made.
func (s *uses) wasMade() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made
}

// hears records that a session knows of the end.
func (s *uses) hears(session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.told == nil {
		s.told = make(map[string]bool)
	}
	s.told[session] = true
}

// put stores the callers.
func (s *uses) put(h *Hello) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.Uncalled, h.AllCalled, h.Callers = !s.called, s.all, slices.Sorted(maps.Keys(s.callers))
}

// inherit adds the forks of a caller as callers; false if that session has not
// called the instance, or the instance has ended since.
func (s *uses) inherit(from string, to []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.called || !s.all && !s.callers[from] {
		return false
	}
	for _, id := range to {
		if s.all = s.all || len(s.callers) >= maxCallers; !s.all {
			s.callers[id] = true
		}
	}
	return true
}

// take returns what is lost with the instance and resets the uses; false for
// nothing.
func (s *uses) take(several bool) (Loss, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.called {
		return Loss{}, false
	}
	l := Loss{All: s.all, Sessions: slices.Sorted(maps.Keys(s.callers)), Told: s.told}
	if !several {
		l.All, l.Sessions = false, []string{""}
	}
	s.called, s.made, s.all, s.callers, s.told = false, false, false, nil, nil
	return l, true
}

// recalls reports whether a request may store something in the server's memory, or
// read from it.
func recalls(method string) bool {
	switch method {
	case wire.MethodCallTool, wire.MethodReadResource, wire.MethodGetPrompt, driver.MethodExec, driver.MethodPut:
		return true
	}
	return false
}

// UsedBy returns a function that adds forks of a session as callers of a server
// that several sessions use: the end of the instance is their loss too. The
// function reports whether the instance is still there. UsedBy returns nil if the
// session has not called the server.
func (u *Upstream) UsedBy(session string) (inherit func(heirs []string) bool) {
	c := u.Peek()
	if c == nil || u.o.Memory.Kept == "" || !c.uses.inherit(session, nil) {
		return nil
	}
	return func(heirs []string) bool {
		if !c.uses.inherit(session, heirs) {
			return false
		}
		if c.called != nil {
			c.called(session)
		}
		return true
	}
}

// caller is the name under which the losses of a request's session are kept.
func (u *Upstream) caller(req *Request) string {
	if u.o.Memory.Several {
		return req.Session
	}
	return ""
}

// lose reports a loss, once for all callers; false if there is none. If the gateway
// itself ended the instance, no session has to be told.
func (u *Upstream) lose(used *uses, why error, gateway bool) bool {
	m := &u.o.Memory
	if m.Kept == "" || m.Lost == nil {
		return false
	}
	u.losing.Lock()
	defer u.losing.Unlock()
	l, ok := used.take(m.Several)
	if !ok {
		return false
	}
	l.Why, l.Kept, l.Tell, l.Ours = cause(why.Error()), m.Kept, !gateway && m.tells(), gateway
	l.Words = u.ownWords(why)
	m.Lost(l)
	return true
}

// ownWords is what a server wrote before an error, if one session alone has it. The
// output of a shared server may repeat what another session said.
func (u *Upstream) ownWords(err error) string {
	if !u.alone() {
		return ""
	}
	return driver.Words(err)
}

// tells reports whether callers are told of the end of an instance.
func (m *Memory) tells() bool { return m.Kept == api.KeptNothing || m.Recalls }

// cause is the text of a driver's error without what a loss says anyway: that the
// instance is gone, with its memory.
func cause(why string) string {
	for again := true; again; {
		again = false
		for _, said := range []string{
			driver.ErrGone.Error(), driver.ErrLost.Error(),
			"and what it had in memory is lost with it", "what it had in memory is lost with it", "what it had in memory is lost",
		} {
			if rest, ok := strings.CutSuffix(why, said); ok && strings.TrimRight(rest, " :,;") != "" {
				why, again = strings.TrimRight(rest, " :,;"), true
			}
		}
	}
	return why
}

// loseState reports that a server's memory can't be restored: a start failed for
// that, and the next one begins anew.
func (u *Upstream) loseState(err error) {
	m := &u.o.Memory
	waits := errors.Is(err, driver.ErrUnfit)
	if m.Kept == "" || m.Lost == nil || !waits && !errors.Is(err, driver.ErrLost) {
		return
	}
	u.losing.Lock()
	defer u.losing.Unlock()
	if u.stateLost && !waits {
		return // reported already
	}
	u.stateLost = !waits
	l := Loss{Why: cause(err.Error()), Words: u.ownWords(err), Kept: api.KeptNothing, Sessions: []string{""}, All: m.Several, Tell: !waits, Unfit: waits}
	if waits {
		l.Kept = m.Kept // the state is there, but for the memory in it
	}
	m.Lost(l)
}

// loseOwn reports the loss when the gateway itself ends an instance, unless no
// session is left. The loss of an instance that had died before is reported in any
// case.
func (u *Upstream) loseOwn(conn *Conn, died bool) {
	u.mu.Lock()
	why := u.ending
	u.mu.Unlock()
	switch {
	case conn == nil || why == "" || u.o.Memory.Reached && conn.sessionless():
	case died && conn.inst != nil && conn.inst.Err() != nil:
		u.lose(&conn.uses, conn.inst.Err(), false)
	default:
		u.lose(&conn.uses, errors.New(why), true)
	}
}

// forget reports the loss when the server ends our session with it; false if there
// is none.
func (u *Upstream) forget(conn *Conn) bool {
	return conn.uses.wasMade() && u.lose(&conn.uses, errForgot, false)
}

// errForgot is why a call was not repeated in another session with its server.
var errForgot = errors.New("it does not know its session any more: it was restarted, or forgot")

// before is called before a request is sent: it returns the error that the session
// must get first, nil for none, and records durably that the instance is called:
// the next gateway must know whether its end is a loss.
func (u *Upstream) before(c *Conn, req *Request) error {
	m := &u.o.Memory
	if !recalls(req.Method) {
		return nil
	}
	who := u.caller(req)
	if m.Owed != nil {
		if err := m.Owed(who); err != nil {
			return noticeError{err}
		}
	}
	if m.Uses != nil {
		m.Uses(who)
	}
	if m.Kept == "" {
		return nil
	}
	if c.uses.note(who, m.Several) && c.called != nil {
		c.called(who)
	}
	return nil
}

// noticeError is the error that a call got instead of being made.
type noticeError struct{ error }

func (e noticeError) Unwrap() error { return e.error }

// fails checks whether a call failed because its instance ended, which its session
// then knows, and reports the loss if no call has. Such a call must not be
// repeated: another instance would answer it.
func (u *Upstream) fails(c *Conn, req *Request, err error) error {
	m := &u.o.Memory
	if m.Kept == "" || !recalls(req.Method) || errors.As(err, new(noticeError)) || !StateLost(err) && Death(err) == "" && !(Kind(err) == api.KindLost && u.died(c)) {
		return err
	}
	who := u.caller(req)
	u.losing.Lock()
	c.uses.hears(who)
	if m.Told != nil {
		m.Told(who)
	}
	u.losing.Unlock()
	ours := asOurs(err)
	why := driver.WithWords(errors.New(Reason(ours)), ours.Words)
	if !m.Reached {
		if u.died(c) && c.inst.Err() != nil {
			why = c.inst.Err()
		}
		u.lose(&c.uses, why, false)
	}
	return forgotError{u.withLoss(err, who)}
}

// withLoss adds to the error of a session's call what was lost with its instance.
func (u *Upstream) withLoss(err error, session string) error {
	ours := *asOurs(err)
	const lost = "; what it had in memory is lost"
	if !u.o.Memory.tells() || strings.Contains(ours.Message, lost+"; ") {
		return err
	}
	follows := ""
	if u.o.Memory.Follows != nil {
		follows = u.o.Memory.Follows(session)
	}
	ours.Message = cause(ours.Message) + "; it is not known whether this call took effect" + lost + "; " + cmp.Or(follows, "the next call begins anew, and the session is marked as damaged")
	switch conn := Death(err); {
	case conn != "":
		return Died(&ours, conn)
	case StateLost(err):
		return goneError{&ours}
	}
	return &ours
}

// asOurs is the error of a call as an *api.Error, which all of them are.
func asOurs(err error) *api.Error {
	var ours *api.Error
	if errors.As(err, &ours) {
		return ours
	}
	return &api.Error{Kind: api.KindLost, Message: err.Error()}
}

// deathWait is how long it may take to notice the end of an instance whose call got
// no answer.
const deathWait = 250 * time.Millisecond

// died reports whether a call failed because its instance ended.
func (u *Upstream) died(c *Conn) bool {
	if c.inst == nil || u.o.Memory.Reached {
		return false
	}
	t := time.NewTimer(deathWait)
	defer t.Stop()
	select {
	case <-c.inst.Done():
		return true
	case <-t.C:
		return false
	}
}

// notStarted handles a failed start for a session: the server's memory may be what
// can't be restored.
func (u *Upstream) notStarted(req *Request, err error) error {
	if u.o.Memory.Told != nil && recalls(req.Method) && Kind(err) == api.KindLost {
		u.o.Memory.Told(u.caller(req))
	}
	return NotSent(err)
}

// loseAdoption reports the loss when an instance ended between two gateways.
func (u *Upstream) loseAdoption(a *Adoption, why error, gateway bool) {
	var used uses
	var h Hello
	if len(a.Hello) == 0 || json.Unmarshal(a.Hello, &h) != nil {
		return // it was never used
	}
	used.of(&h)
	u.lose(&used, why, gateway)
}
