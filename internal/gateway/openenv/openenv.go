// Package openenv speaks the wire of OpenEnv, in which a trainer takes an episode of an
// environment: reset, steps, state. An environment is an entry of the config, and an
// episode is a session of its own, opened for the caller and closed with the episode.
//
//	/openenv/{environment}/ws                   a WebSocket, which is an episode
//	/openenv/{environment}/ws?session_id=ID     the same, in a session made at /mcp
//	/openenv/{environment}/reset /step /state   over HTTP, each in a world of its own that ends with the answer
//	/openenv/{environment}/mcp                  JSON-RPC without a handshake, over HTTP or as a WebSocket
//	/openenv/{environment}/health /metadata /schema /openapi.json
//
// The measure is the server of the package openenv 0.10, and what clients of
// openenv-core 0.3.0 do. It differs where a world fails: a tool's own error is an
// observation, and a server that died is never one, since a trainer would score it.
// Then there is an error frame, and the episode is over.
package openenv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/identity"
)

// Prefix is where environments are.
const Prefix = "/openenv/"

// A Host is what environments need of the gateway that they are part of. All of it is
// done with the rights that the principal has by then, and may run at once.
type Host interface {
	// Environment is the environment of a name, by the config of now.
	Environment(name string) (Environment, bool)
	// Environments are the names that there are.
	Environments() []string
	// Open opens a session, as POST /v1/sessions does. It ends with the gateway at the
	// latest, also with one that is killed.
	Open(ctx context.Context, who identity.Principal, in api.NewSession) (Session, error)
	// Tools lists the tools of a session that a view has, each as MCP lists it. It fails
	// where the list of a server can't be had.
	Tools(ctx context.Context, who identity.Principal, session string, v View) ([]json.RawMessage, error)
	// Call calls a tool, as POST /v1/call does. The error is ErrNoTool where the view has
	// no such tool, else an *api.Error.
	Call(ctx context.Context, who identity.Principal, c Call) (Result, error)
	// Annotate notes something of a session, where there is a journal.
	Annotate(ctx context.Context, who identity.Principal, session string, in api.NewAnnotation) error
	// Told is an error as a principal is told it.
	Told(who identity.Principal, err error) *api.Error
	// While derives the context of a connection, which ends when its principal may not
	// come in any more, and with the gateway.
	While(ctx context.Context, who identity.Principal) (context.Context, func())
	// Stopping is closed when connections are to end.
	Stopping() <-chan struct{}
	// MaxBody bounds a message, in bytes.
	MaxBody() int64
	// Body reads the body of a request, up to MaxBody.
	Body(w http.ResponseWriter, r *http.Request) ([]byte, error)
}

// An Environment is an entry of the config.
type Environment struct {
	config.Environment
	Separator string // between a server and a tool in Reward
}

// reward is the tool that scores steps, and its server; empty for none.
func (e Environment) reward() (server, tool string) {
	server, tool, _ = strings.Cut(e.Reward, e.Separator)
	return server, tool
}

// A Session is the session of an episode. It does not count as unused until it is
// closed.
type Session interface {
	ID() string
	// Gone is closed when the session was closed by others, or its time is over.
	Gone() <-chan struct{}
	// Lost is what the session has lost since it was opened; empty for nothing.
	Lost() string
	Relabel(ctx context.Context, labels map[string]string) error
	Close() error
}

// A View is what of a session an agent has.
type View struct {
	// Servers are those whose tools it has; empty for all. The tools of a single one have
	// their own names, and otherwise those of the merged view.
	Servers []string
	// Except is a tool that it does not have, as server and tool.
	Except string
	// Aside says that it is not the agent's: what it lists is not what the session saw.
	Aside bool
}

// A Call is one call of a tool.
type Call struct {
	Session   string
	View      View
	Tool      string
	Arguments json.RawMessage // nil for none
	Timeout   string          // as in api.CallRequest
	// Scores is the call that this one scores, by its id in the journal. It is empty where that
	// has none, and for a call of the agent's.
	Scores string
	From   *http.Request // what it came in by
}

// MetaReward is the key in the _meta of a call of a reward tool: the call that it scores. By
// it the calls of agents are told apart.
const MetaReward = "openenv/reward"

// A Result is what a tool answered.
type Result struct {
	Raw  json.RawMessage // a CallToolResult
	Call string          // its id in the journal; empty for none
}

// ErrNoTool is the error of a call whose tool does not exist.
var ErrNoTool = errors.New("unknown tool")

// A Server serves the environments of a gateway.
type Server struct {
	host Host
	log  *slog.Logger
	wg   sync.WaitGroup // connections, and what ends sessions

	mu     sync.Mutex
	open   map[string]int   // episodes, by environment
	made   map[string]*made // sessions that were made over HTTP, by id
	closed bool
}

// New makes a server. Close must be called.
func New(host Host, log *slog.Logger) *Server {
	return &Server{host: host, log: log, open: make(map[string]int), made: make(map[string]*made)}
}

// Close ends the episodes, and waits for that. Connections have to end by themselves: see
// Host.Stopping.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	var all []*made
	for _, m := range s.made {
		all = append(all, m)
	}
	s.mu.Unlock()
	for _, m := range all {
		s.drop(m)
	}
	s.wg.Wait()
}

// begin counts an episode of an environment, until done is called.
func (s *Server) begin(name string) (done func(), err error) {
	env, ok := s.host.Environment(name)
	if !ok {
		return nil, s.noEnvironment(name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, &api.Error{Kind: api.KindRefused, Status: http.StatusServiceUnavailable, Retryable: true, Message: "the gateway is stopping"}
	case s.open[name] >= env.Episodes:
		return nil, &fullError{name, s.open[name], env.Episodes}
	}
	s.open[name]++
	s.wg.Add(1)
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.open[name]--; s.open[name] == 0 {
			delete(s.open, name)
		}
		s.wg.Done()
	}), nil
}

// A fullError is of an environment that has as many episodes as it may.
type fullError struct {
	name         string
	active, most int
}

func (e *fullError) Error() string {
	return fmt.Sprintf("environment %q has %d episodes open and may have %d; close some, or raise environments.%s.episodes", e.name, e.active, e.most, e.name)
}

func (e *fullError) api() *api.Error {
	return &api.Error{Kind: api.KindRefused, Status: http.StatusTooManyRequests, Retryable: true, Message: e.Error()}
}

// noEnvironment is the error of a name that no environment has.
func (s *Server) noEnvironment(name string) *api.Error {
	const most = 20
	names := s.host.Environments()
	message := fmt.Sprintf("there is no environment %q here", clip(name))
	if near := config.Nearest(name, names); near != "" {
		message += fmt.Sprintf(" (did you mean %q?)", near)
	}
	switch n := len(names); {
	case n == 0:
		message += "; add it to environments in the config"
	case n > most:
		message += fmt.Sprintf("; there are %s and %d more", strings.Join(names[:most], ", "), n-most)
	default:
		message += "; there is " + strings.Join(names, ", ")
	}
	return &api.Error{Kind: api.KindInvalid, Status: http.StatusNotFound, Message: message}
}

// clip bounds what an error repeats of a request.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// Serve answers a request below Prefix. The error, if there is one, is still to be
// written.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request, who identity.Principal) error {
	name, place, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, Prefix), "/")
	env, ok := s.host.Environment(name)
	if !ok {
		return s.noEnvironment(name)
	}
	method := http.MethodGet
	var serve func() error
	switch place {
	case "ws":
		serve = func() error { return s.serveEpisode(w, r, who, name) }
	case "mcp":
		if r.Method == http.MethodGet {
			serve = func() error { return s.serveRPCSocket(w, r, who, name) }
			break
		}
		method, serve = http.MethodPost, func() error { return s.serveRPC(w, r, who, name) }
	case "reset":
		method, serve = http.MethodPost, func() error { return s.serveReset(w, r, who, name) }
	case "step":
		method, serve = http.MethodPost, func() error { return s.serveStep(w, r, who, name) }
	case "state":
		serve = func() error { return s.serveState(w, r, who, name) }
	case "health":
		serve = func() error { return writeJSON(w, http.StatusOK, map[string]string{"status": "healthy"}) }
	case "metadata":
		serve = func() error { return writeJSON(w, http.StatusOK, metadataOf(env)) }
	case "schema":
		serve = func() error { return writeJSON(w, http.StatusOK, schemas) }
	case "openapi.json":
		serve = func() error { return writeJSON(w, http.StatusOK, document(env)) }
	default:
		return &api.Error{
			Kind: api.KindInvalid, Status: http.StatusNotFound,
			Message: fmt.Sprintf("there is nothing at %s; environment %q has ws, reset, step, state, mcp, schema, metadata, health and openapi.json", clip(r.URL.Path), name),
		}
	}
	if r.Method != method && !(method == http.MethodGet && r.Method == http.MethodHead) {
		w.Header().Set("Allow", method)
		return &api.Error{
			Kind: api.KindInvalid, Status: http.StatusMethodNotAllowed,
			Message: fmt.Sprintf("there is no %s %s; it has %s", r.Method, r.URL.Path, method),
		}
	}
	return serve()
}

// throwaway does something in a world that ends with it.
func (s *Server) throwaway(who identity.Principal, name string, do func(w *world) error) error {
	done, err := s.begin(name)
	if err != nil {
		return asAPI(err)
	}
	defer done()
	w := s.newWorld(who, name)
	defer w.close()
	return asAPI(do(w))
}

// asAPI makes an error of an episode one of the API.
func asAPI(err error) error {
	var full *fullError
	var f *failure
	switch {
	case errors.As(err, &full):
		return full.api()
	case errors.As(err, &f) && f.cause != nil:
		return f.cause
	case errors.As(err, &f):
		return &api.Error{Kind: api.KindInfrastructure, Message: f.message}
	}
	return err
}

func (s *Server) serveReset(w http.ResponseWriter, r *http.Request, who identity.Principal, name string) error {
	body, err := s.host.Body(w, r)
	if err != nil {
		return err
	}
	params, bad := readReset(body)
	if bad != nil {
		return unprocessable(w, bad)
	}
	return s.throwaway(who, name, func(world *world) error {
		out, err := world.reset(r.Context(), params)
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, out)
	})
}

func (s *Server) serveStep(w http.ResponseWriter, r *http.Request, who identity.Principal, name string) error {
	body, err := s.host.Body(w, r)
	if err != nil {
		return err
	}
	act, bad := readStepRequest(body)
	if bad != nil {
		return unprocessable(w, bad)
	}
	act.from = r
	return s.throwaway(who, name, func(world *world) error {
		world.begun = true
		out, err := world.step(r.Context(), act)
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, out)
	})
}

func (s *Server) serveState(w http.ResponseWriter, r *http.Request, who identity.Principal, name string) error {
	return s.throwaway(who, name, func(world *world) error {
		out, err := world.state(r.Context())
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, out)
	})
}

// unprocessable answers a request whose body is not what it must be, as the framework of
// OpenEnv's own server does.
func unprocessable(w http.ResponseWriter, bad *mistake) error {
	return writeJSON(w, http.StatusUnprocessableEntity, map[string]any{"detail": []detail{bad.detail()}})
}

func writeJSON(w http.ResponseWriter, status int, v any) error {
	b, err := encode(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(b) // a caller that has gone does not matter
	return nil
}

// encode writes JSON without changing texts of servers.
func encode(v any) ([]byte, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return []byte(b.String()), err
}

// decode reads one JSON value into a struct, without keys that it does not have.
func decode(data []byte, v any) error {
	dec := json.NewDecoder(strings.NewReader(string(data)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more than one value in it")
	}
	return nil
}
