package openenv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/wire"
)

// rpcServer is the code of OpenEnv's own errors, beside those of JSON-RPC.
const rpcServer = -32000

// Methods beside those of MCP.
const (
	methodCreate = "openenv/session/create"
	methodClose  = "openenv/session/close"
)

// A request is one of JSON-RPC. There is no handshake before it.
type request struct {
	JSONRPC string          `json:"jsonrpc"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	ID      json.RawMessage `json:"id"`
}

// rpcParameters are those of all methods.
type rpcParameters struct {
	Session   string          `json:"session_id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// A reply is the answer to a request: it has a result or an error.
type reply struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result,omitempty"`
	Error   *rpcError       `json:"error,omitempty"`
}

type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data"`
}

func (e *rpcError) Error() string { return e.Message }

// A made is a world that was made over HTTP, and is found by its id. A connection may be
// attached to it, one at a time.
type made struct {
	*world
	id   string
	done func()
	idle time.Duration

	// With the server's lock.
	attached bool
	closing  bool // it ends with the connection
	timer    *time.Timer
}

// vanished is how long a world is kept whose connection has ended: its client may connect
// again, or goes on over HTTP.
const vanished = 30 * time.Second

// make makes a world with a session.
func (s *Server) make(ctx context.Context, who identity.Principal, name string) (*made, error) {
	done, err := s.begin(name)
	if err != nil {
		return nil, err
	}
	w := s.newWorld(who, name)
	if _, err := w.state(ctx); err != nil { // opens it
		w.close()
		done()
		return nil, err
	}
	m := &made{world: w, id: newEpisodeID(), done: done, idle: w.env.Idle}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		go s.drop(m) // done has not been called: Close waits for it
		return nil, errors.New("the gateway is stopping")
	}
	s.made[m.id] = m
	m.timer = time.AfterFunc(m.idle, func() { s.expire(m) })
	return m, nil
}

// find finds a world of a principal, and gives it its idle time again.
func (s *Server) find(who identity.Principal, name, id string) *made {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.made[id]
	if m == nil || m.name != name || m.who.Name != who.Name || m.who.Session != who.Session || m.who.Token() != who.Token() {
		return nil
	}
	if !m.attached {
		m.timer.Reset(m.idle)
	}
	return m
}

// expire ends a world that was not used.
func (s *Server) expire(m *made) {
	s.mu.Lock()
	attached := m.attached
	s.mu.Unlock()
	if !attached {
		s.log.Info("OpenEnv session closed: it was not used", "environment", m.name, "session_id", m.id)
		s.drop(m)
	}
}

// drop ends a world.
func (s *Server) drop(m *made) {
	s.mu.Lock()
	delete(s.made, m.id)
	if m.timer != nil {
		m.timer.Stop()
	}
	s.mu.Unlock()
	m.close()
	m.done()
}

// attach lets a connection use a world.
func (s *Server) attach(who identity.Principal, name, id string) (*made, error) {
	m := s.find(who, name, id)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case m == nil || s.made[id] != m:
		return nil, &failure{code: codeSession, message: "Unknown session_id: " + clip(id)}
	case m.attached:
		return nil, &failure{code: codeSession, message: "Session " + id + " already has an attached WebSocket"}
	}
	m.attached = true
	m.timer.Stop()
	return m, nil
}

// detach is the end of a connection to a world.
func (s *Server) detach(m *made) {
	s.mu.Lock()
	m.attached = false
	over := m.closing || s.closed || s.made[m.id] != m
	if !over {
		m.timer.Reset(min(vanished, m.idle))
	}
	s.mu.Unlock()
	if over {
		s.drop(m)
	}
}

// closeMade ends a world by its id, or has it end with its connection.
func (s *Server) closeMade(who identity.Principal, name, id string) (any, error) {
	m := s.find(who, name, id)
	if m == nil {
		return nil, &rpcError{Code: wire.CodeInvalidParams, Message: "Unknown session_id: " + clip(id)}
	}
	s.mu.Lock()
	m.closing = m.closing || m.attached
	attached := m.attached
	s.mu.Unlock()
	if attached {
		return map[string]any{"session_id": id, "closed": false, "closing": true}, nil
	}
	s.drop(m)
	return map[string]any{"session_id": id, "closed": true}, nil
}

func (s *Server) serveRPC(w http.ResponseWriter, r *http.Request, who identity.Principal, name string) error {
	body, err := s.host.Body(w, r)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, s.rpc(r.Context(), r, who, name, nil, body))
}

// rpc answers a request of JSON-RPC, in a world where the connection has one.
func (s *Server) rpc(ctx context.Context, r *http.Request, who identity.Principal, name string, in *world, body []byte) reply {
	out := reply{JSONRPC: "2.0", ID: json.RawMessage("null")}
	if !json.Valid(body) || strings.HasPrefix(strings.TrimSpace(string(body)), "[") {
		out.Error = &rpcError{Code: wire.CodeParse, Message: "Parse error"}
		return out
	}
	var req request
	err := decode(body, &req)
	switch {
	case err != nil:
		err = &rpcError{Code: wire.CodeInvalidRequest, Message: "Invalid request: " + strings.TrimPrefix(err.Error(), "json: ")}
	case req.JSONRPC != "2.0" || req.Method == "":
		err = &rpcError{Code: wire.CodeInvalidRequest, Message: `Invalid request: jsonrpc must be "2.0", and method must name one`}
	case len(req.ID) > 0 && strings.ContainsAny(string(req.ID[:1]), "{[tf"):
		err = &rpcError{Code: wire.CodeInvalidRequest, Message: "Invalid request: id must be a string or a number"}
	default:
		if len(req.ID) > 0 {
			out.ID = req.ID
		}
		out.Result, err = s.method(ctx, r, who, name, in, &req)
	}
	if err != nil {
		out.Result, out.Error = nil, asRPC(err)
	}
	return out
}

// asRPC is an error as JSON-RPC has it.
func asRPC(err error) *rpcError {
	var e *rpcError
	var full *fullError
	var f *failure
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &full):
		return &rpcError{Code: rpcServer, Message: full.Error(), Data: map[string]int{"active_sessions": full.active, "max_sessions": full.most}}
	case errors.As(err, &f):
		return &rpcError{Code: rpcServer, Message: f.Error(), Data: map[string]string{"code": f.code}}
	}
	return &rpcError{Code: wire.CodeInternal, Message: err.Error()}
}

func (s *Server) method(ctx context.Context, r *http.Request, who identity.Principal, name string, in *world, req *request) (any, error) {
	var p rpcParameters
	if !isObject(req.Params) || len(req.Params) > 0 && json.Unmarshal(req.Params, &p) != nil {
		return nil, &rpcError{Code: wire.CodeInvalidParams, Message: "Params must be an object, with session_id and name as strings"}
	}
	switch req.Method {
	case methodCreate:
		if in != nil {
			st, err := in.state(ctx)
			if err != nil {
				return nil, err
			}
			return map[string]string{"session_id": st.Session}, nil
		}
		m, err := s.make(ctx, who, name)
		if err != nil {
			return nil, err
		}
		return map[string]string{"session_id": m.id}, nil
	case methodClose:
		if p.Session == "" {
			return nil, &rpcError{Code: wire.CodeInvalidParams, Message: "Invalid params - 'session_id' is required"}
		}
		return s.closeMade(who, name, p.Session)
	case wire.MethodListTools:
	case wire.MethodCallTool:
		switch {
		case p.Name == "":
			return nil, &rpcError{Code: wire.CodeInvalidParams, Message: "Missing 'name' in params"}
		case !isObject(p.Arguments):
			return nil, &rpcError{Code: wire.CodeInvalidParams, Message: "arguments must be an object"}
		}
	default:
		return nil, &rpcError{Code: wire.CodeMethodNotFound, Message: "Method not found: " + clip(req.Method)}
	}
	do := func(w *world) (any, error) { return w.method(ctx, r, req.Method, p) }
	switch {
	case in != nil:
		return do(in)
	case p.Session == "":
		var out any
		err := s.throwaway(who, name, func(w *world) (err error) {
			out, err = do(w)
			return err
		})
		return out, err
	}
	m := s.find(who, name, p.Session)
	if m == nil {
		return nil, &rpcError{Code: wire.CodeInvalidParams, Message: "Unknown session_id: " + clip(p.Session)}
	}
	out, err := do(m.world)
	if f := (*failure)(nil); errors.As(err, &f) && !s.isAttached(m) {
		s.drop(m)
	}
	return out, err
}

func (s *Server) isAttached(m *made) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return m.attached
}

// method does what a request asks for in a world. Rewards are for steps alone.
func (w *world) method(ctx context.Context, r *http.Request, method string, p rpcParameters) (any, error) {
	if method == wire.MethodListTools {
		all, err := w.tools(ctx, false)
		if err != nil {
			return nil, err
		}
		list := make([]map[string]json.RawMessage, len(all))
		for i, raw := range all {
			if err := json.Unmarshal(raw, &list[i]); err != nil {
				return nil, fmt.Errorf("reading a tool that a server lists: %w", err)
			}
			if d := list[i]["description"]; len(d) == 0 || string(d) == "null" {
				list[i]["description"] = json.RawMessage(`""`) // clients want one
			}
		}
		return map[string]any{"tools": list}, nil
	}
	if err := w.take(ctx); err != nil {
		return nil, err
	}
	defer w.give()
	seen, _, err := w.call(ctx, action{Type: actCall, Tool: p.Name, Arguments: p.Arguments, from: r})
	switch {
	case err != nil:
		return nil, err
	case seen.Error != nil:
		return nil, &rpcError{Code: wire.CodeInternal, Message: seen.Error.Message, Data: map[string]string{"error_type": seen.Error.Type}}
	}
	return seen.Result, nil
}
