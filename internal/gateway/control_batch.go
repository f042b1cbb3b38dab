package gateway

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/telemetry"
)

// batch does many requests in one. Each item does what the same request alone does.
func (g *Gateway) batch(a *ask, in api.Batch) (out flow[api.BatchLine], err error) {
	r, err := a.request()
	if err == nil {
		err = in.Valid(r.Key != "")
	}
	if err != nil {
		return out, err
	}
	b := &batchRun{g: g, a: a, in: in, atOnce: cmp.Or(in.AtOnce, api.DefaultAtOnce), request: r}
	if r.Key != "" {
		// A key stands for the batch as a whole: an item that is the same in another
		// batch is another request.
		body, err := json.Marshal(in)
		if err != nil {
			return out, err
		}
		key, sum := sha256.Sum256([]byte(r.Key)), sha256.Sum256(body)
		b.key, b.sum = "batch:"+hex.EncodeToString(key[:])+":", hex.EncodeToString(sum[:])
		if !in.Atomic {
			if err := g.services.Sessions.Claim(a.ctx(), r, in); err != nil {
				return out, err
			}
		}
	}
	out.g, out.run = g, b.each
	if in.Atomic {
		out.run = b.all
	}
	return out, nil
}

// A batchRun is one batch.
type batchRun struct {
	g        *Gateway
	a        *ask
	in       api.Batch
	atOnce   int
	request  control.Request
	key, sum string // of its items, and of all of it; empty without a key
}

// each does the items, each by itself.
func (b *batchRun) each(ctx context.Context, emit func(api.BatchLine) error) {
	var failed atomic.Int64
	b.g.services.Sessions.Each(ctx, b.a.who, len(b.in.Items), b.atOnce, func(i int, who identity.Principal, err error) {
		var line api.BatchLine
		if err == nil {
			line, err = b.one(ctx, i, who)
		}
		if err != nil {
			failed.Add(1)
			call := line.Call
			line = b.failure(who, err)
			line.Call = call
		}
		line.Item = &i
		_ = emit(line) // a caller that has gone ends ctx
	})
	b.done(ctx, emit, int(failed.Load()))
}

// done ends the answer, unless the caller has left: not all items have begun then.
func (b *batchRun) done(ctx context.Context, emit func(api.BatchLine) error, failed int) {
	if ctx.Err() == nil {
		_ = emit(api.BatchLine{Done: true, Failed: &failed})
	}
}

func (b *batchRun) failure(who identity.Principal, err error) api.BatchLine {
	e := asError(b.g.clean(who, err))
	return api.BatchLine{Error: e, Status: httpStatus(e)}
}

// one does an item, which has a place among the running requests.
func (b *batchRun) one(ctx context.Context, i int, who identity.Principal) (line api.BatchLine, err error) {
	defer telemetry.Contain(b.g.log, telemetry.InEdge, "batch", func(panicked error) { err = panicked })
	item := &b.in.Items[i]
	switch {
	case item.Open != nil:
		r, _, err := b.item(i, who, "openSession", "")
		if err != nil {
			return line, err
		}
		opened, err := b.g.services.Sessions.Open(ctx, r, *item.Open)
		return b.made(control.Made{Opened: &opened}), err
	case item.Fork != nil:
		r, id, err := b.item(i, who, "forkSession", item.Fork.Session)
		if err != nil {
			return line, err
		}
		forks, err := b.g.services.Sessions.Fork(ctx, r, id, item.Fork.ForkRequest)
		return b.made(control.Made{Forks: &forks}), err
	case item.Close != nil:
		r, id, err := b.item(i, who, "closeSession", item.Close.Session)
		if err != nil {
			return line, err
		}
		return api.BatchLine{Closed: true}, b.g.services.Sessions.Close(ctx, r, id, nil)
	}
	if _, _, err := b.item(i, who, "callTool", ""); err != nil {
		return line, err
	}
	res, err := b.g.makeCall(ctx, who, b.a.r, *item.Call, nil, true)
	return api.BatchLine{Result: res.result, Call: res.call}, err
}

// item checks that a principal may use the route of an item, finds its session, and
// makes its request.
func (b *batchRun) item(i int, who identity.Principal, route, session string) (r control.Request, id string, err error) {
	rt := b.g.routeOf(route)
	if err := rt.admits(who); err != nil {
		return r, "", err
	}
	if session != "" {
		if id, err = b.g.services.Sessions.ID(who, session); err != nil {
			return r, "", err
		}
	}
	r = control.Request{Who: who, Conn: b.a.conn, Placed: true}
	if b.key != "" {
		r.Key = b.key + strconv.Itoa(i)
		r.What = b.request.What + " " + b.sum + " " + rt.method + " " + strings.Replace(rt.pattern, "{session}", id, 1)
	}
	return r, id, nil
}

// made is the line of an item that made sessions.
func (b *batchRun) made(m control.Made) api.BatchLine {
	if m.Opened != nil {
		b.g.setURL(b.a.r, &m.Opened.Session)
	}
	if m.Forks != nil {
		for i := range m.Forks.Sessions {
			b.g.setURL(b.a.r, &m.Forks.Sessions[i].Session)
		}
	}
	return api.BatchLine{Opened: m.Opened, Forks: m.Forks}
}

// all does all items or none.
func (b *batchRun) all(ctx context.Context, emit func(api.BatchLine) error) {
	made, err := b.makeAll(ctx)
	if err == nil {
		for i := range made {
			line := b.made(made[i])
			line.Item = &i
			if emit(line) != nil {
				return
			}
		}
		b.done(ctx, emit, 0)
		return
	}
	back := &control.TakenBack{}
	if !errors.As(err, &back) {
		back.Errs = make([]error, len(b.in.Items))
		back.Errs[0] = err
	}
	first, cause := back.First()
	for i, err := range back.Errs {
		line := b.failure(b.a.who, cmp.Or(err, cause))
		if err == nil {
			e := *line.Error
			e.Message = fmt.Sprintf("taken back, since items[%d] failed: %s", first, e.Message)
			line.Error = &e
		}
		line.Item = &i
		if emit(line) != nil {
			return
		}
	}
	b.done(ctx, emit, len(back.Errs))
}

func (b *batchRun) makeAll(ctx context.Context) ([]control.Made, error) {
	makings := make([]control.Making, len(b.in.Items))
	back := &control.TakenBack{Errs: make([]error, len(b.in.Items))}
	wrong := false
	for i := range b.in.Items {
		if makings[i], back.Errs[i] = b.making(i); back.Errs[i] != nil {
			wrong = true
		}
	}
	if wrong {
		return nil, back
	}
	return b.g.services.Sessions.MakeAll(ctx, b.request, b.in, makings, b.atOnce)
}

func (b *batchRun) making(i int) (control.Making, error) {
	item, who := &b.in.Items[i], b.a.who
	if item.Open != nil {
		if _, _, err := b.item(i, who, "openSession", ""); err != nil {
			return nil, err
		}
		return b.g.services.Sessions.Opening(who, *item.Open)
	}
	_, id, err := b.item(i, who, "forkSession", item.Fork.Session)
	if err != nil {
		return nil, err
	}
	return b.g.services.Sessions.Forking(who, id, item.Fork.ForkRequest)
}
