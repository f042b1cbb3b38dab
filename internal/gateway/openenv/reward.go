package openenv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"

	"github.com/tine-mcp/tine/api"
)

// score has a step scored by the tool that the environment names. A step that can't be
// scored ends the episode: a reward that is left out would be taken for one. The turn is
// held.
func (w *world) score(ctx context.Context, a action, seen *callObserved, call string, out *outcome) error {
	server, name := w.env.reward()
	if server == "" {
		return nil
	}
	v := View{Servers: []string{server}, Aside: true}
	args, err := w.scoreArguments(ctx, v, name, a, seen)
	if err != nil {
		return err
	}
	graded := &callObserved{}
	res, err := w.s.host.Call(ctx, w.who, Call{Session: w.sess.ID(), View: v, Tool: name, Arguments: args, Scores: call, From: a.from})
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case err != nil:
		return w.unscored(err)
	}
	if err := w.read(ctx, name, v, res.Raw, graded); err != nil {
		return err
	}
	if graded.Error != nil {
		return w.unscored(errors.New(graded.Error.Message))
	}
	if err := readScore(graded.Result.Data, out); err != nil {
		return w.unscored(err)
	}
	if out.Reward != nil && call != "" {
		if err := w.s.host.Annotate(ctx, w.who, w.sess.ID(), api.NewAnnotation{Call: call, Reward: (*float64)(out.Reward)}); err != nil {
			return w.unscored(fmt.Errorf("noting its reward: %w", err))
		}
	}
	return nil
}

// unscored ends the world for a step without a reward. The turn is held.
func (w *world) unscored(err error) error {
	if ended := w.check(err); ended != nil {
		return ended
	}
	told := w.s.host.Told(w.who, err)
	return w.fail(codeSession, &api.Error{
		Kind:    api.KindInfrastructure,
		Message: fmt.Sprintf("the step was made and can't be scored by %s (environments.%s.reward): %s", w.env.Reward, w.name, told.Message),
	})
}

// scoreArguments are what the reward tool is called with: of all that there is to know of
// the step what its schema names. The turn is held.
func (w *world) scoreArguments(ctx context.Context, v View, name string, a action, seen *callObserved) (json.RawMessage, error) {
	all := map[string]any{
		"environment": w.name, "episode_id": w.episode, "step": w.steps, "reset": w.asked,
		"tool_name": a.Tool, "arguments": a.Arguments, "result": seen.Result, "error": seen.Error,
	}
	if w.scoring == nil {
		list, err := w.list(ctx, v)
		if err != nil {
			return nil, w.unscored(err)
		}
		if w.scoring, err = argumentsOf(list, name); err != nil {
			return nil, w.unscored(err)
		}
	}
	if !w.scoring[anyArgument] {
		for key := range all {
			if !w.scoring[key] {
				delete(all, key)
			}
		}
	}
	return encode(all)
}

// anyArgument stands for all, where a tool takes any.
const anyArgument = "*"

// argumentsOf are the arguments that a tool of a list takes.
func argumentsOf(list []json.RawMessage, name string) (map[string]bool, error) {
	for _, raw := range list {
		var t struct {
			Name  string `json:"name"`
			Input struct {
				Properties map[string]json.RawMessage `json:"properties"`
				Additional json.RawMessage            `json:"additionalProperties"`
			} `json:"inputSchema"`
		}
		if json.Unmarshal(raw, &t) != nil || t.Name != name {
			continue
		}
		takes := make(map[string]bool, len(t.Input.Properties))
		for key := range t.Input.Properties {
			takes[key] = true
		}
		if string(t.Input.Additional) == "true" {
			takes[anyArgument] = true
		}
		return takes, nil
	}
	return nil, errors.New("there is no such tool")
}

// readScore reads what a reward tool returned: a number, or an object with reward and
// done, of which the rest is metadata. Null is no reward.
func readScore(data json.RawMessage, out *outcome) error {
	var text string
	if json.Unmarshal(data, &text) == nil && text != "" { // a server without structured results
		data = json.RawMessage(strings.TrimSpace(text))
	}
	var all map[string]json.RawMessage
	if len(data) > 0 && data[0] == '{' {
		if err := json.Unmarshal(data, &all); err != nil {
			return fmt.Errorf("its answer can't be read: %w", err)
		}
	} else {
		all = map[string]json.RawMessage{"reward": data}
	}
	raw, ok := all["reward"]
	if !ok || len(raw) == 0 {
		return errors.New("its answer has no reward; return a number, or an object with reward and done")
	}
	var number *float64
	var truth bool
	switch {
	case json.Unmarshal(raw, &number) == nil:
	case json.Unmarshal(raw, &truth) == nil:
		number = new(float64)
		if truth {
			*number = 1
		}
	default:
		return fmt.Errorf("its reward must be a number, and is %s", clip(string(raw)))
	}
	if number != nil && (math.IsNaN(*number) || math.IsInf(*number, 0)) {
		return errors.New("its reward must be finite")
	}
	out.Reward = (*reward)(number)
	if raw, ok := all["done"]; ok && json.Unmarshal(raw, &out.Done) != nil {
		return fmt.Errorf("done must be true or false, and is %s", clip(string(raw)))
	}
	delete(all, "reward")
	delete(all, "done")
	var more map[string]json.RawMessage
	if raw, ok := all["metadata"]; ok && json.Unmarshal(raw, &more) == nil {
		delete(all, "metadata")
	}
	maps.Copy(all, more)
	if len(all) > 0 {
		out.Metadata = make(map[string]any, len(all)+1)
	}
	for key, v := range all {
		out.Metadata[key] = v
	}
	return nil
}
