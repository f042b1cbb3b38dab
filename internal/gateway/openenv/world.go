package openenv

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/identity"
)

// A world is where a caller takes episodes, one after another. Its session is opened when
// it is first needed, and again at each reset of one that was used. What is done in it is
// done one thing at a time.
type world struct {
	s    *Server
	who  identity.Principal
	name string        // of the environment
	turn chan struct{} // held while something is done

	// With the turn.
	env     Environment     // as the session was opened
	sess    Session         // nil before the first use, and after the end
	asked   json.RawMessage // the parameters of the reset; nil for none
	episode string
	steps   int
	begun   bool // whether a step may be made: there was a reset, or the world is for one step
	used    bool // whether a tool was called
	wraps   map[string]bool
	scoring map[string]bool // the arguments that the reward tool takes; nil where that is not known yet
	ended   *failure        // why there is no more
}

func (s *Server) newWorld(who identity.Principal, name string) *world {
	return &world{s: s, who: who, name: name, turn: make(chan struct{}, 1)}
}

// take waits for the turn.
func (w *world) take(ctx context.Context) error {
	select {
	case w.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if w.ended != nil {
		w.give()
		return w.ended
	}
	return nil
}

func (w *world) give() { <-w.turn }

// view is what an agent has of the session. The turn is held.
func (w *world) view() View { return View{Servers: w.env.Servers, Except: w.env.Reward} }

// ensure opens the session, unless there is one. The turn is held.
func (w *world) ensure(ctx context.Context) error {
	if w.sess != nil {
		return nil
	}
	return w.open(ctx, reset{})
}

// open opens a session for an episode. The turn is held.
func (w *world) open(ctx context.Context, r reset) error {
	env, ok := w.s.host.Environment(w.name)
	if !ok {
		return w.fail(codeFactory, w.s.noEnvironment(w.name))
	}
	episode := r.episode
	if episode == "" {
		episode = newEpisodeID()
	}
	sess, err := w.s.host.Open(ctx, w.who, api.NewSession{
		From: env.Template, Servers: serversOf(env), Labels: labelsOf(env, episode), TTL: env.TTL.String(),
	})
	if err != nil {
		return w.fail(codeFactory, err)
	}
	w.sess, w.env, w.episode, w.asked = sess, env, episode, r.params
	w.steps, w.used, w.wraps, w.scoring = 0, false, make(map[string]bool), nil
	return nil
}

// serversOf are the servers of an environment's sessions; nil for all.
func serversOf(env Environment) []string {
	server, _ := env.reward()
	if len(env.Servers) == 0 || server == "" || slices.Contains(env.Servers, server) {
		return env.Servers
	}
	return append(slices.Clone(env.Servers), server)
}

// labelsOf are the labels of an episode's session.
func labelsOf(env Environment, episode string) map[string]string {
	labels := maps.Clone(env.Labels)
	if labels == nil {
		labels = make(map[string]string, 2)
	}
	labels[config.LabelEnvironment], labels[config.LabelEpisode] = env.Name, episode
	return labels
}

// newEpisodeID is a random UUID, as OpenEnv's environments make them.
func newEpisodeID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// fail ends the world. The turn is held.
func (w *world) fail(code string, cause error) *failure {
	told := w.s.host.Told(w.who, cause)
	f := &failure{code: code, message: told.Message, cause: told}
	w.s.log.Warn("OpenEnv episode failed", "environment", w.name, "session", w.sessionID(), "code", code, "err", told.Message)
	w.ended = f
	w.end()
	return f
}

func (w *world) sessionID() string {
	if w.sess == nil {
		return ""
	}
	return w.sess.ID()
}

// end closes the session. The turn is held.
func (w *world) end() {
	if w.sess == nil {
		return
	}
	if err := w.sess.Close(); err != nil {
		w.s.log.Warn("the session of an OpenEnv episode is not closed; it ends with its ttl, or the gateway", "session", w.sess.ID(), "err", err)
	}
	w.sess = nil
}

// close ends the world, after what is being done in it.
func (w *world) close() {
	w.turn <- struct{}{}
	defer w.give()
	if w.ended == nil {
		w.ended = &failure{code: codeSession, message: "the episode is over"}
	}
	w.end()
}

// gone is closed when the session ends by itself; nil while there is none.
func (w *world) gone() <-chan struct{} {
	select {
	case w.turn <- struct{}{}:
		defer w.give()
	default:
		return nil // something is being done, which will find out
	}
	if w.sess == nil {
		return nil
	}
	return w.sess.Gone()
}

// lost ends the world, of which the session has ended.
func (w *world) lost(ctx context.Context) error {
	if err := w.take(ctx); err != nil {
		return err
	}
	defer w.give()
	return w.check(nil)
}

// check ends the world if its session is no longer the one that the episode began with.
// The turn is held.
func (w *world) check(err error) error {
	if w.sess == nil {
		return nil
	}
	if why := w.sess.Lost(); why != "" {
		return w.fail(codeSession, &api.Error{Kind: api.KindLost, Message: "the world of this episode is damaged: " + why})
	}
	select {
	case <-w.sess.Gone():
		message := fmt.Sprintf("session %s of this episode was closed, or its time is over (environments.%s.ttl)", w.sess.ID(), w.name)
		if err != nil {
			message += ": " + err.Error()
		}
		return w.fail(codeSession, &api.Error{Kind: api.KindLost, Message: message})
	default:
	}
	return nil
}

// reset begins an episode, in a world that nothing was done in.
func (w *world) reset(ctx context.Context, r reset) (*outcome, error) {
	if err := w.take(ctx); err != nil {
		return nil, err
	}
	defer w.give()
	if !w.fresh() {
		w.end()
		if err := w.open(ctx, r); err != nil {
			return nil, err
		}
	} else if err := w.begin(ctx, r); err != nil {
		return nil, err
	}
	w.begun = true
	about := map[string]any{"environment": w.name, "episode_id": w.episode, "session": w.sess.ID()}
	return &outcome{Observation: observed{about}, Metadata: about}, nil
}

// fresh reports whether the session is as a new one would be. The turn is held.
func (w *world) fresh() bool {
	if w.sess == nil || w.used || w.sess.Lost() != "" {
		return false
	}
	select {
	case <-w.sess.Gone():
		return false
	default:
	}
	env, _ := w.s.host.Environment(w.name)
	return reflect.DeepEqual(env, w.env)
}

// begin begins an episode in the session that there is. The turn is held.
func (w *world) begin(ctx context.Context, r reset) error {
	w.steps, w.asked = 0, r.params
	if w.episode = r.episode; w.episode == "" {
		w.episode = newEpisodeID()
	}
	if err := w.sess.Relabel(ctx, labelsOf(w.env, w.episode)); err != nil {
		return w.fail(codeSession, err)
	}
	return nil
}

// state says where the episode is.
func (w *world) state(ctx context.Context) (*stateData, error) {
	if err := w.take(ctx); err != nil {
		return nil, err
	}
	defer w.give()
	if err := w.ensure(ctx); err != nil {
		return nil, err
	}
	return &stateData{Episode: w.episode, Steps: w.steps, Environment: w.name, Session: w.sess.ID()}, nil
}

// step does an action.
func (w *world) step(ctx context.Context, a action) (*outcome, error) {
	if a.Type == actList {
		all, err := w.tools(ctx, true)
		if err != nil {
			return nil, err
		}
		seen := toolsObserved{Metadata: map[string]any{}, Tools: make([]tool, 0, len(all))}
		for _, raw := range all {
			t, err := toolOf(raw)
			if err != nil {
				return nil, err
			}
			seen.Tools = append(seen.Tools, t)
		}
		return &outcome{Observation: seen}, nil
	}
	if err := w.take(ctx); err != nil {
		return nil, err
	}
	defer w.give()
	if !w.begun {
		// A client that connects again by itself after a failure would go on in a world
		// that its episode never had.
		return nil, &mistake{"", "no episode has begun on this connection; send a reset before the first step (an episode ends with its connection)"}
	}
	seen, call, err := w.call(ctx, a)
	if err != nil {
		return nil, err
	}
	out := &outcome{}
	if err := w.score(ctx, a, seen, call, out); err != nil {
		return nil, err
	}
	if call != "" {
		if out.Metadata == nil {
			out.Metadata = make(map[string]any, 1)
		}
		out.Metadata["call"] = call
	}
	if seen.Metadata = out.Metadata; seen.Metadata == nil {
		seen.Metadata = map[string]any{}
	}
	out.Observation = seen
	return out, nil
}

// toolOf is a tool in OpenEnv's words.
func toolOf(raw json.RawMessage) (tool, error) {
	var in struct {
		Name        string          `json:"name"`
		Description *string         `json:"description"`
		InputSchema json.RawMessage `json:"inputSchema"`
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return tool{}, fmt.Errorf("reading a tool that a server lists: %w", err)
	}
	t := tool{Name: in.Name, InputSchema: in.InputSchema}
	if in.Description != nil {
		t.Description = *in.Description
	}
	if !isObject(t.InputSchema) || len(t.InputSchema) == 0 || string(t.InputSchema) == "null" {
		t.InputSchema = json.RawMessage("{}")
	}
	return t, nil
}

// tools lists the tools, which may count as a step.
func (w *world) tools(ctx context.Context, counts bool) ([]json.RawMessage, error) {
	if err := w.take(ctx); err != nil {
		return nil, err
	}
	defer w.give()
	if err := w.ensure(ctx); err != nil {
		return nil, err
	}
	all, err := w.list(ctx, w.view())
	if err == nil && counts {
		w.steps++
	}
	return all, err
}

// list lists the tools of a view. The turn is held.
func (w *world) list(ctx context.Context, v View) ([]json.RawMessage, error) {
	all, err := w.s.host.Tools(ctx, w.who, w.sess.ID(), v)
	if err != nil {
		return nil, w.judge(err)
	}
	return all, nil
}

// judge is the error of something that was not done: it ends the world if that has
// failed. The turn is held.
func (w *world) judge(err error) error {
	if ended := w.check(err); ended != nil {
		return ended
	}
	told := w.s.host.Told(w.who, err)
	switch {
	case errors.Is(err, context.Canceled): // the caller has gone
		return err
	case told.Kind == api.KindInfrastructure || told.Kind == api.KindLost:
		return w.fail(codeSession, err)
	}
	return &refusal{told}
}

// call calls a tool. The turn is held.
func (w *world) call(ctx context.Context, a action) (*callObserved, string, error) {
	if err := w.ensure(ctx); err != nil {
		return nil, "", err
	}
	w.used = true
	seen := &callObserved{Tool: a.Tool}
	res, err := w.s.host.Call(ctx, w.who, Call{Session: w.sess.ID(), View: w.view(), Tool: a.Tool, Arguments: a.Arguments, Timeout: a.timeout, From: a.from})
	if ended := w.check(err); ended != nil {
		return nil, "", ended
	}
	switch {
	case errors.Is(err, ErrNoTool):
		seen.Error = &toolError{errNotFound, err.Error()}
	case err != nil:
		if seen.Error = w.toolError(err); seen.Error == nil {
			return nil, "", w.judge(err)
		}
	default:
		if err := w.read(ctx, a.Tool, w.view(), res.Raw, seen); err != nil {
			return nil, "", err
		}
	}
	w.steps++
	return seen, res.Call, nil
}

// toolError is the error of a call that is an observation; nil where it is none.
func (w *world) toolError(err error) *toolError {
	told := w.s.host.Told(w.who, err)
	switch told.Kind {
	case api.KindTool:
		return &toolError{errExecution, told.Message}
	case api.KindInvalid:
		return &toolError{errArguments, told.Message}
	case api.KindTimeout:
		return &toolError{errTimeout, told.Message}
	}
	return nil
}

// read reads what a tool answered. The turn is held.
func (w *world) read(ctx context.Context, tool string, v View, raw json.RawMessage, to *callObserved) error {
	var in struct {
		Content    json.RawMessage `json:"content"`
		Structured json.RawMessage `json:"structuredContent"`
		Meta       json.RawMessage `json:"_meta"`
		IsError    bool            `json:"isError"`
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return w.fail(codeSession, &api.Error{Kind: api.KindInfrastructure, Message: fmt.Sprintf("tool %s: its result can't be read: %v", clip(tool), err)})
	}
	text, plain := textOf(in.Content)
	if in.IsError {
		if text == "" {
			text = fmt.Sprintf("tool %s failed and says nothing of it", tool)
		}
		to.Error = &toolError{errExecution, text}
		return nil
	}
	to.Result = &result{Content: in.Content, Structured: in.Structured, Meta: in.Meta, Data: in.Structured}
	if len(in.Content) == 0 {
		to.Result.Content = json.RawMessage("[]")
	}
	switch {
	case len(in.Structured) > 0 && string(in.Structured) != "null":
		inner, wrapped, err := w.unwrap(ctx, tool, v, in.Structured, in.Meta)
		if err != nil {
			return err
		}
		if wrapped {
			to.Result.Data = inner
		}
	case plain && text != "":
		// OpenEnv has nothing here, and MCPToolClient.call_tool returns only this.
		to.Result.Data, _ = json.Marshal(text)
	}
	return nil
}

// unwrap is the value that a tool returned whose server, made with FastMCP, put it into an
// object since MCP wants one. The turn is held.
func (w *world) unwrap(ctx context.Context, tool string, v View, structured, meta json.RawMessage) (json.RawMessage, bool, error) {
	var object map[string]json.RawMessage
	if json.Unmarshal(structured, &object) != nil || len(object) != 1 || object["result"] == nil {
		return nil, false, nil
	}
	var marks struct {
		FastMCP struct {
			Wrap bool `json:"wrap_result"`
		} `json:"fastmcp"`
	}
	if json.Unmarshal(meta, &marks) == nil && marks.FastMCP.Wrap {
		return object["result"], true, nil
	}
	wraps, known := w.wraps[tool]
	if !known {
		all, err := w.list(ctx, v)
		if err != nil {
			return nil, false, err
		}
		for _, raw := range all {
			var t struct {
				Name   string `json:"name"`
				Output struct {
					Wrap bool `json:"x-fastmcp-wrap-result"`
				} `json:"outputSchema"`
			}
			if json.Unmarshal(raw, &t) == nil && t.Name == tool {
				wraps = t.Output.Wrap
			}
		}
		w.wraps[tool] = wraps
	}
	return object["result"], wraps, nil
}

// textOf is the text of a result, and whether there is nothing else in it.
func textOf(content json.RawMessage) (text string, plain bool) {
	var blocks []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(content, &blocks) != nil {
		return "", false
	}
	var texts []string
	plain = true
	for _, b := range blocks {
		if b.Type == "text" {
			texts = append(texts, b.Text)
		} else {
			plain = false
		}
	}
	return strings.Join(texts, "\n"), plain
}
