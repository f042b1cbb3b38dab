package gateway

import (
	"errors"
	"net/http"
	"sync"

	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// maxBatch bounds the messages of one batch.
const maxBatch = 100

// postBatch handles several messages in one request, which revisions up to
// 2025-03-26 allow. They run at once and are answered together.
func (g *Gateway) postBatch(w http.ResponseWriter, r *http.Request, who identity.Principal, d door, id string, body []byte) {
	if v := r.Header.Get(wire.HeaderVersion); v >= wire.V20250618 {
		rpcError(w, http.StatusBadRequest, nil, &wire.Error{Code: wire.CodeInvalidRequest, Message: "protocol version " + v + " has no batches"})
		return
	}
	if e := checkForgedBody(r.Header, body); e != nil {
		rpcError(w, http.StatusBadRequest, nil, e)
		return
	}
	msgs, err := wire.ScanBatch(body, maxBatch)
	if err != nil {
		rpcError(w, http.StatusBadRequest, nil, &wire.Error{Code: wire.CodeParse, Message: "unreadable batch: " + err.Error()})
		return
	}
	requests := 0
	for _, m := range msgs {
		if m.Method == wire.MethodInitialize {
			rpcError(w, http.StatusBadRequest, nil, &wire.Error{Code: wire.CodeInvalidRequest, Message: "initialize can't be part of a batch"})
			return
		}
		if m.IsRequest() {
			requests++
		}
	}
	if requests > 0 {
		if e := g.enter(who, requests); e != nil {
			refuseError(w, e)
			return
		}
		defer g.leave(who, requests)
	}
	var c *client
	client := &upstream.Client{Key: newClientID()}
	sess, err := g.services.Sessions.Of(r.Context(), who, d.session)
	if id != "" {
		if c = g.known(w, who, d, id); c == nil {
			return
		}
		defer c.batch()()
		sess, client = c.sess, c.desc()
	} else if err != nil {
		for _, m := range msgs {
			if params, unreadable := wire.ScanParams(m.Method, m.Params); m.IsRequest() && unreadable == nil {
				err = g.late(r.Context(), who, d, m.Method, &params, err)
			}
		}
		refuseError(w, err)
		return
	}
	frames := make([][]byte, len(msgs))
	var wg sync.WaitGroup
	for i, msg := range msgs {
		switch {
		case msg.IsRequest():
			wg.Go(func() {
				defer telemetry.Contain(g.log, telemetry.InEdge, msg.Method, func(err error) {
					frames[i] = frameOf(msg.ID, inForm(r, sess.Catalog(), d.view, msg.Method, failed(msg.Method, err)))
				})
				params, err := wire.ScanParams(msg.Method, msg.Params)
				if err != nil {
					frames[i] = frameOf(msg.ID, failed(msg.Method, invalidParams(err.Error())))
					return
				}
				x := &exchange{g: g, who: who, view: d.view, sess: sess, client: client, conn: c, method: msg.Method, params: params, from: r}
				frames[i] = frameOf(msg.ID, x.run(r.Context()))
			})
		case c != nil && msg.IsNotification():
			c.note(msg)
		case c != nil:
			c.answered(msg)
		}
	}
	wg.Wait()
	out := []byte{'['}
	for _, f := range frames {
		if f == nil {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, f...)
	}
	if len(out) == 1 {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	w.Header()["Content-Type"] = contentJSON
	_ = send(w, append(out, ']'))
}

// checkForgedBody holds mirror headers against a body that is not parsed yet.
// Of several messages they can't say anything.
func checkForgedBody(h http.Header, body []byte) *wire.Error {
	if len(h[wire.HeaderMethod]) == 0 && len(h[wire.HeaderName]) == 0 {
		return nil
	}
	msg, err := wire.Scan(body)
	if errors.Is(err, wire.ErrBatch) {
		return &wire.Error{
			Code: wire.CodeHeaderMismatch, Message: "Header mismatch: a batch goes without " + wire.HeaderMethod + " and " + wire.HeaderName,
		}
	}
	var params wire.Params
	if err == nil {
		params, err = wire.ScanParams(msg.Method, msg.Params)
	}
	if err != nil {
		return &wire.Error{Code: wire.CodeParse, Message: "unreadable message: " + err.Error()}
	}
	return checkForged(h, &msg, &params)
}
