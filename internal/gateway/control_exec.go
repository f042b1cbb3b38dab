package gateway

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/tine-mcp/tine/api"
)

// execStream is the answer of a command: lines.
type execStream struct{}

func (execStream) contents() []content {
	return []content{{media: mediaLines, of: reflect.TypeFor[api.ExecEvent]()}}
}

// exec runs a command and answers with what it writes as it comes. What fails before the
// command has run is an answer like any other failure.
func (g *Gateway) exec(a *ask, in api.ExecRequest) (execStream, error) {
	if e := g.tooMany(a.who); e != nil {
		return execStream{}, e
	}
	if e := g.enter(a.who, 1); e != nil {
		return execStream{}, e
	}
	defer g.leave(a.who, 1)
	ctx, served := g.whileServing(a.ctx())
	defer served()
	out := &execLines{a: a, ctl: http.NewResponseController(a.w)}
	// A caller may wait for the beginning of an answer for less time than a quiet
	// command takes.
	begin := time.AfterFunc(execBegin, out.begin)
	stdout, stderr := &execPipe{out: out}, &execPipe{out: out, err: true}
	exit, call, err := g.services.Sessions.Exec(ctx, a.who, a.args["session"], in, stdout, stderr)
	begin.Stop()
	if err == nil {
		err = errors.Join(stdout.flush(), stderr.flush())
	}
	if err != nil && !out.has() {
		return execStream{}, err
	}
	last := api.ExecEvent{ID: call}
	switch {
	case err != nil:
		last.Error = asError(g.clean(a.who, err))
	case exit.TimedOut:
		last.Timeout = true
	case exit.Signal != "":
		last.Signal = exit.Signal
	default:
		last.Exit = &exit.Code
	}
	if out.send(last) != nil {
		panic(http.ErrAbortHandler) // a part must not be taken for the whole
	}
	return execStream{}, errAnswered
}

// execBegin is how long a quiet command keeps the beginning of the answer back.
const execBegin = time.Second

// execLines writes the events of a command.
type execLines struct {
	a   *ask
	ctl *http.ResponseController

	mu    sync.Mutex
	begun bool
}

// has reports whether the answer has begun.
func (l *execLines) has() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.begun
}

func (l *execLines) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.start()
	_ = l.ctl.Flush()
}

// start is begin for a caller that has the lock.
func (l *execLines) start() {
	if l.begun {
		return
	}
	l.begun = true
	h := l.a.w.Header()
	h.Set("Content-Type", mediaLines)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	l.a.w.WriteHeader(http.StatusOK)
}

func (l *execLines) send(e api.ExecEvent) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.start()
	if err := sendPieces(l.a.w, l.ctl, append(line, '\n')); err != nil {
		return err
	}
	return l.ctl.Flush()
}

// execPipe makes events of one output of a command. A character that comes in two pieces
// is sent with the second.
type execPipe struct {
	out  *execLines
	err  bool
	half []byte
}

func (p *execPipe) Write(b []byte) (int, error) {
	all := append(p.half, b...)
	cut := len(all) - incomplete(all)
	p.half = append([]byte(nil), all[cut:]...)
	return len(b), p.send(all[:cut])
}

// flush sends half a character that nothing came after.
func (p *execPipe) flush() error {
	half := p.half
	p.half = nil
	return p.send(half)
}

func (p *execPipe) send(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	var e api.ExecEvent
	switch text := utf8.Valid(b); {
	case text && p.err:
		e.Stderr = string(b)
	case text:
		e.Stdout = string(b)
	case p.err:
		e.Stderr64 = b
	default:
		e.Stdout64 = b
	}
	return p.out.send(e)
}

// incomplete is how many bytes at the end are the beginning of a character.
func incomplete(b []byte) int {
	for n := 1; n <= min(len(b), utf8.UTFMax-1); n++ {
		if c := b[len(b)-n]; utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}
