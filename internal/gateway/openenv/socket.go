package openenv

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/telemetry"
)

const (
	// pingEvery is how often a peer is asked whether it is there, and pingWait how long it
	// has to answer.
	pingEvery = 20 * time.Second
	pingWait  = 20 * time.Second
	// writeWait is how long a peer may take to read a message.
	writeWait = time.Minute
	// ahead is how many messages are read before the one in work is answered. Further
	// ones, and pings after them, wait.
	ahead = 1
)

// A socket is one WebSocket.
type socket struct {
	conn     *websocket.Conn
	ctx      context.Context // ends when the peer has gone or may not come in any more
	messages chan []byte
	end      func()
}

// accept makes a WebSocket of a request. The gateway has checked its origin before. The
// messages end with the peer. The caller must call end.
func (s *Server) accept(w http.ResponseWriter, r *http.Request, who identity.Principal) (*socket, error) {
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return nil, err // which is answered already
	}
	conn.SetReadLimit(s.host.MaxBody())
	ctx, stop := s.host.While(r.Context(), who)
	ctx, cancel := context.WithCancel(ctx)
	sock := &socket{conn: conn, ctx: ctx, messages: make(chan []byte, ahead)}
	read, pinged := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(read)
		defer cancel()
		defer telemetry.Contain(s.log, telemetry.InEdge, r.URL.Path, nil)
		for {
			_, data, err := conn.Read(ctx)
			if err != nil {
				return
			}
			select {
			case sock.messages <- data:
			case <-ctx.Done():
				return
			}
		}
	}()
	go func() {
		defer close(pinged)
		defer cancel()
		tick := time.NewTicker(pingEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			within, over := context.WithTimeout(ctx, pingWait)
			err := conn.Ping(within)
			over()
			if err != nil {
				return
			}
		}
	}()
	sock.end = func() {
		cancel()
		_ = conn.CloseNow()
		<-read
		<-pinged
		stop()
	}
	return sock, nil
}

// send sends a message. It reports whether the peer is still there.
func (k *socket) send(v any) bool {
	b, err := encode(v)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(k.ctx, writeWait)
	defer cancel()
	return k.conn.Write(ctx, websocket.MessageText, b[:len(b)-1]) == nil
}

// close tells the peer that it is over.
func (k *socket) close(code websocket.StatusCode, reason string) {
	if k.ctx.Err() == nil {
		_ = k.conn.Close(code, reason)
	}
}

// serveEpisode serves the WebSocket of an episode.
func (s *Server) serveEpisode(w http.ResponseWriter, r *http.Request, who identity.Principal, name string) error {
	return s.serveSocket(w, r, who, name, func(err error) (any, bool) { return errorFrame(err) },
		func(ctx context.Context, in *world, message []byte) (any, bool) {
			return s.episodeMessage(ctx, r, in, message)
		})
}

// serveRPCSocket serves a WebSocket of JSON-RPC.
func (s *Server) serveRPCSocket(w http.ResponseWriter, r *http.Request, who identity.Principal, name string) error {
	tell := func(err error) (any, bool) {
		return reply{JSONRPC: "2.0", ID: json.RawMessage("null"), Error: asRPC(err)}, true
	}
	return s.serveSocket(w, r, who, name, tell, func(ctx context.Context, in *world, message []byte) (any, bool) {
		out := s.rpc(ctx, r, who, name, in, message)
		return out, out.Error != nil && out.Error.Code == rpcServer
	})
}

// serveSocket serves a WebSocket, which has a world: its own, or one that was made over
// HTTP. Handle answers a message, and tell an error; both report whether it is over.
func (s *Server) serveSocket(w http.ResponseWriter, r *http.Request, who identity.Principal, name string,
	tell func(err error) (any, bool), handle func(ctx context.Context, in *world, message []byte) (any, bool),
) error {
	sock, err := s.accept(w, r, who)
	if err != nil {
		s.log.Debug("no WebSocket was made", "path", r.URL.Path, "err", err)
		return nil
	}
	defer sock.end()
	refuse := func(err error) error {
		answer, _ := tell(err)
		if sock.send(answer) {
			sock.close(websocket.StatusNormalClosure, "")
		}
		return nil
	}
	var (
		in    *world
		idle  time.Duration
		leave func()
	)
	if id := r.URL.Query().Get("session_id"); id != "" {
		m, err := s.attach(who, name, id)
		if err != nil {
			return refuse(err)
		}
		in, idle, leave = m.world, m.idle, sync.OnceFunc(func() { s.detach(m) })
	} else {
		done, err := s.begin(name)
		if err != nil {
			return refuse(err)
		}
		env, _ := s.host.Environment(name)
		in, idle = s.newWorld(who, name), env.Idle
		leave = sync.OnceFunc(func() {
			in.close()
			done()
		})
	}
	defer leave() // also after a panic
	code, reason := s.converse(sock, in, idle, tell, handle)
	leave() // first: a peer that has seen the end finds nothing left
	sock.close(code, reason)
	return nil
}

// converse answers messages until it is over, and returns why.
func (s *Server) converse(sock *socket, in *world, idle time.Duration,
	tell func(err error) (any, bool), handle func(ctx context.Context, in *world, message []byte) (any, bool),
) (websocket.StatusCode, string) {
	timer := time.NewTimer(idle)
	defer timer.Stop()
	for {
		var answer any
		over := false
		select {
		case <-sock.ctx.Done():
			return websocket.StatusGoingAway, ""
		case <-s.host.Stopping():
			return websocket.StatusGoingAway, "the gateway is stopping"
		case <-timer.C:
			answer, _ = tell(&failure{code: codeSession, message: "the episode had no message for " + idle.String() + " (environments." + in.name + ".idle) and is over"})
			over = true
		case <-in.gone():
			err := in.lost(sock.ctx)
			if err == nil {
				continue // it was a session that a reset has replaced
			}
			answer, over = tell(err)
		case message := <-sock.messages:
			if answer, over = handle(sock.ctx, in, message); answer == nil {
				return websocket.StatusNormalClosure, ""
			}
			timer.Reset(idle)
		}
		if !sock.send(answer) || over {
			return websocket.StatusNormalClosure, ""
		}
	}
}

// episodeMessage answers a message of an episode; nil for a close.
func (s *Server) episodeMessage(ctx context.Context, r *http.Request, in *world, message []byte) (any, bool) {
	var got struct {
		Type string          `json:"type"`
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(message, &got); err != nil {
		return frame{typeError, errorData{Message: "Invalid JSON: want an object with type and data: " + err.Error(), Code: codeJSON}}, false
	}
	answer, err := s.handle(ctx, r, in, got.Type, got.Data)
	if err != nil {
		return errorFrame(err)
	}
	return answer, false
}

func (s *Server) handle(ctx context.Context, r *http.Request, in *world, kind string, data json.RawMessage) (any, error) {
	switch kind {
	case typeReset:
		params, bad := readReset(data)
		if bad != nil {
			return nil, bad
		}
		return framed(typeObservation)(in.reset(ctx, params))
	case typeStep:
		act, bad := readAction(data)
		if bad != nil {
			return nil, bad
		}
		act.from = r
		return framed(typeObservation)(in.step(ctx, act))
	case typeState:
		st, err := in.state(ctx)
		return frame{typeState, st}, err
	case typeMCP:
		out := s.rpc(ctx, r, in.who, in.name, in, data)
		if out.Error != nil && out.Error.Code == rpcServer {
			return nil, &failure{code: codeSession, message: out.Error.Message}
		}
		return frame{typeMCP, out}, nil
	case typeClose:
		return nil, nil
	}
	return frame{typeError, errorData{Message: "Unknown message type: " + clip(kind), Code: codeType}}, nil
}

// framed puts an outcome into a frame.
func framed(kind string) func(*outcome, error) (any, error) {
	return func(o *outcome, err error) (any, error) { return frame{kind, o}, err }
}
