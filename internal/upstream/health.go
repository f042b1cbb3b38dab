package upstream

import (
	"cmp"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/telemetry"
)

// Health is how a server is doing, for all sessions that use it. It is logged when
// it changes, and only then:
//
//	well --an instance ends--> ended --a start fails--> failing
//	  \--a start fails, or a server over HTTP does not answer--^
//	ended, failing --a start succeeds, or calls are answered again--> well
//
// It also keeps what the last instances that failed wrote to their standard error.
type Health struct {
	Log  *slog.Logger
	Mask func(string) string // hides secrets; nil hides none
	// Changed hears of each change, and must not wait; nil for none.
	Changed func(HealthChange)

	state    atomic.Int32
	mu       sync.Mutex
	of       string
	personal bool
	last     time.Time // a failure
	ended    []Ended   // the oldest first
}

const (
	isWell int32 = iota
	hasEnded
	isFailing
)

// A HealthChange is how a server is doing from now on, and why if it is not well.
type HealthChange struct {
	Server, State string // the state is one of those of the package api
	Kind          api.Kind
	Reason        string
}

// changed tells of a change. The caller holds mu.
func (h *Health) changed(server, state string, why error) {
	if h.Changed == nil {
		return
	}
	c := HealthChange{Server: server, State: state}
	if why != nil {
		ours := asOurs(why)
		c.Kind, c.Reason = ours.Kind, Reason(ours)
	}
	h.Changed(c)
}

// Ended is what an instance that failed wrote to its standard error.
type Ended struct {
	Instance, Session string
	At                time.Time
	Text              string
}

const (
	// maxEnded and maxEndedText bound what is kept of each server.
	maxEnded     = 8
	maxEndedText = 64 << 10
	// endedMargin is read before it, because a secret that begins before the excerpt
	// would not be recognized.
	endedMargin = 64 << 10
	// calm is how long no call may have failed before an answered call counts as
	// recovery: of a server that answers every other call the log says once that it
	// fails.
	calm = 5 * time.Second
)

// Begin says how the server is started or reached from now on. If that changes, its
// known health no longer holds. With personal each principal has its own access: a
// refusal of one says nothing about the server.
func (h *Health) Begin(of string, personal bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.personal = personal
	if h.of != of {
		h.of = of
		h.state.Store(isWell)
	}
}

// ends notes an instance that ran and ended by itself.
func (h *Health) ends(server, session string, why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state.Store(hasEnded)
	h.last = time.Now()
	h.Log.Warn("server ended", "server", server, "session", session, "err", why, "words", driver.Words(why))
	h.changed(server, api.HealthEnded, why)
}

// fails notes a start or a call that failed through the server's fault.
func (h *Health) fails(server, session string, why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.personal && Kind(why) == api.KindRefused {
		return
	}
	h.last = time.Now()
	if h.state.Swap(isFailing) == isFailing {
		return
	}
	ours := asOurs(why)
	h.Log.Warn("server fails", "server", server, "session", session, "err", Reason(ours), "words", ours.Words)
	h.changed(server, api.HealthFailing, why)
}

// starts notes an instance that runs and has completed its handshake.
func (h *Health) starts(server string) {
	if h.state.Load() != isWell {
		h.recovers(server, 0)
	}
}

// answers notes a call that a server over HTTP answered.
func (h *Health) answers(server string) {
	if h.state.Load() != isWell {
		h.recovers(server, calm)
	}
}

func (h *Health) recovers(server string, after time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.last) >= after && h.state.Swap(isWell) != isWell {
		h.Log.Info("server is well again", "server", server)
		h.changed(server, api.HealthWell, nil)
	}
}

// keep stores what an instance wrote, in place of the output of an earlier one with
// the same name.
func (h *Health) keep(e Ended) {
	if e.Text == "" {
		return
	}
	if h.Mask != nil {
		e.Text = h.Mask(e.Text)
	}
	e.Text = e.Text[max(0, len(e.Text)-maxEndedText):]
	e.At = time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = append(slices.DeleteFunc(h.ended, func(old Ended) bool { return old.Instance == e.Instance }), e)
	h.ended = slices.Delete(h.ended, 0, max(0, len(h.ended)-maxEnded))
}

// Ended returns the stored output, the oldest first.
func (h *Health) Ended() []Ended {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.ended)
}

// explainEnd is why an instance ended or did not start, with what it wrote and what
// can be done about it, if known. Its output is stored. The instance is nil if there
// is none.
func (u *Upstream) explainEnd(inst driver.Instance, why error) (err error) {
	defer telemetry.Contain(u.o.Log, telemetry.InUpstream, u.Server(), func(error) { err = why })
	text := u.logOf(inst, maxEndedText+endedMargin)
	if text == "" {
		text = driver.Words(why)
	}
	u.o.Health.keep(Ended{Instance: u.Name(), Session: u.Session(), Text: text})
	return u.withHint(text, why)
}

// withHint adds to an error what a server wrote and what can be done about it.
func (u *Upstream) withHint(log string, why error) error {
	words := driver.Words(why)
	if words == "" {
		words = driver.LastWords(log)
	}
	end := log[max(0, len(log)-maxHinted):]
	if hint := cmp.Or(hints.For(u.o.Spec, end), u.o.Driver.Info().Hints.For(u.o.Spec, end)); hint != "" {
		words += "\nhint: " + hint
	}
	return driver.WithWords(why, words)
}

// logOf is the end of an instance's standard error.
func (u *Upstream) logOf(inst driver.Instance, max int64) string {
	if inst == nil {
		return ""
	}
	r, err := inst.Logs(max)
	if err != nil {
		u.o.Log.Debug("can't read the log of a server", "server", u.Server(), "err", err)
		return ""
	}
	defer r.Close()
	text, _ := io.ReadAll(io.LimitReader(r, max))
	return string(text)
}
