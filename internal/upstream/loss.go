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

// A server that ends takes along what it had in memory. The next instance would
// answer as if nothing had been, so every end of an instance that was called is
// reported, before another one is started: whose session it was is marked, and
// the first call after the end fails and says so, unless a call that was under
// way has said so already. No call is repeated on another instance.

// Memory says what becomes of what a server remembers when its instance ends, and
// who wants to know. The zero value is for servers that remember nothing.
type Memory struct {
	// Kept is what the next instance begins with: api.KeptNothing, or api.KeptFiles
	// where the server has declared state. Empty where nothing can be lost.
	Kept string
	// Recalls says that the server remembers in its memory, whatever files are kept:
	// its end is told.
	Recalls bool
	// Several says that more sessions than one use the instance. Their calls are
	// told apart by Request.Session.
	Several bool
	// Alone says that one session has the instance, and never shares it with its
	// forks: what the server writes to its standard error is that session's.
	Alone bool
	// Reached says that the server is not run but reached: what it remembers hangs
	// on the session that it gave us, if it did.
	Reached bool
	// Lost hears of a loss. It returns when that is written down.
	Lost func(Loss)
	// Owed returns what a session has to be told before a call of it is sent, once;
	// nil for nothing. Told says that it has been told otherwise.
	Owed func(session string) error
	Told func(session string)
	// Follows says what a loss means for the next calls of a session; nil or empty where
	// they begin anew.
	Follows func(session string) string
	// Unfit hears that a call of a session met a memory in its server's state that
	// does not fit, and returns what the session has to be told; nil where it was
	// told before, and the call begins anew. Fits hears of every start, with its
	// memory or anew.
	Unfit func(session, why string) error
	Fits  func(anew bool)
	// Uses hears of every call of a session before it is sent; nil where nobody wants to
	// know.
	Uses func(session string)
	// Called hears of the first call of a session to an instance that the next
	// gateway can't adopt, before it is sent: whose death is a loss then.
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
	// Tell says that each has to be told with its next call, except for those that
	// were Told.
	Tell bool
	Told map[string]bool
	// Ours says that the gateway itself ended the instance.
	Ours bool
	// Unfit says that the memory is still there and does not fit: each that calls is
	// told, and what is lost may be back by then.
	Unfit bool
}

// maxCallers is how many sessions that called an instance are noted.
const maxCallers = 1000

// uses is who has called an instance since it started, and who has heard of its
// end.
type uses struct {
	mu      sync.Mutex
	called  bool // a call was sent, or is about to be
	made    bool // a call was made, whatever came of it
	all     bool
	callers map[string]bool
	told    map[string]bool
}

// of begins with what a handshake says of calls in an earlier life.
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

// makes notes that a call was made.
func (s *uses) makes() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made = true
}

// wasMade reports whether one was.
func (s *uses) wasMade() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made
}

// hears notes that a session has heard of the end.
func (s *uses) hears(session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.told == nil {
		s.told = make(map[string]bool)
	}
	s.told[session] = true
}

// put writes down who called.
func (s *uses) put(h *Hello) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.Uncalled, h.AllCalled, h.Callers = !s.called, s.all, slices.Sorted(maps.Keys(s.callers))
}

// inherit adds callers to an instance that one of its callers forks into; false
// where that has not called it, or it has ended since.
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

// take returns what is lost with the instance and begins again; false for
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

// recalls reports whether a request may have a server remember something, or asks
// for what it remembers.
func recalls(method string) bool {
	switch method {
	case wire.MethodCallTool, wire.MethodReadResource, wire.MethodGetPrompt:
		return true
	}
	return false
}

// UsedBy returns a way to give other sessions a share in what a session has done
// with a server that several use: the end of the instance is their loss too. It
// reports whether the instance is still there. UsedBy returns nil where the session
// has done nothing.
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

// lose reports a loss, once for all that called; false where there is none. Where
// the gateway itself ended the instance, nobody has to be told.
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

// ownWords is what a server wrote before an error, for the one session that has it.
// What a server of several wrote may repeat what another session said.
func (u *Upstream) ownWords(err error) string {
	if !u.alone() {
		return ""
	}
	return driver.Words(err)
}

// tells reports whether the end of an instance is told to who called it.
func (m *Memory) tells() bool { return m.Kept == api.KeptNothing || m.Recalls }

// cause is the text of a driver's error without what a loss says anyway: that the
// instance is gone, and its memory with it.
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

// loseState reports that what a server remembers can't be brought back: a start
// failed for that, and the next one begins anew.
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

// loseOwn reports the loss that the gateway's own end of an instance is, unless
// nobody is left to lose anything. One that had died before is as lost as any.
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

// forget reports the loss that the server's end of our session with it is; false
// where there is none.
func (u *Upstream) forget(conn *Conn) bool {
	return conn.uses.wasMade() && u.lose(&conn.uses, errForgot, false)
}

// errForgot is why a call was not made again in another session with its server.
var errForgot = errors.New("it does not know its session any more: it was restarted, or forgot")

// before is called before a request is sent: it returns what the session has to be
// told first, nil for nothing, and notes that the instance is called, durably: the
// next gateway must know whether its end is a loss.
func (u *Upstream) before(c *Conn, req *Request) error {
	m := &u.o.Memory
	if !recalls(req.Method) {
		return nil
	}
	who := u.caller(req)
	if m.Owed != nil {
		if err := m.Owed(who); err != nil {
			return toldError{err}
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

// toldError is what a call got instead of being made.
type toldError struct{ error }

func (e toldError) Unwrap() error { return e.error }

// fails sees whether a call failed because its instance ended, which its session
// has heard of then, and reports the loss if nobody has. Such a call must not be
// made again: another instance would answer it.
func (u *Upstream) fails(c *Conn, req *Request, err error) error {
	m := &u.o.Memory
	if m.Kept == "" || !recalls(req.Method) || errors.As(err, new(toldError)) || !StateLost(err) && Death(err) == "" && !(Kind(err) == api.KindLost && u.died(c)) {
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

// withLoss has the error of a session's call say what was lost with its instance.
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

// asOurs is the error of a call, all of which are ours.
func asOurs(err error) *api.Error {
	var ours *api.Error
	if errors.As(err, &ours) {
		return ours
	}
	return &api.Error{Kind: api.KindLost, Message: err.Error()}
}

// deathWait is how long an instance whose call got no answer may take to be seen
// ended.
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

// notStarted sees what a failed start means for a session: what the server
// remembered may be what can't be brought back.
func (u *Upstream) notStarted(req *Request, err error) error {
	if u.o.Memory.Told != nil && recalls(req.Method) && Kind(err) == api.KindLost {
		u.o.Memory.Told(u.caller(req))
	}
	return NotSent(err)
}

// loseAdoption reports the loss that the end of an instance between two gateways
// is.
func (u *Upstream) loseAdoption(a *Adoption, why error, gateway bool) {
	var used uses
	var h Hello
	if len(a.Hello) == 0 || json.Unmarshal(a.Hello, &h) != nil {
		return // it was never used
	}
	used.of(&h)
	u.lose(&used, why, gateway)
}
