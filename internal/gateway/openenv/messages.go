package openenv

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"
)

// Codes of error frames.
const (
	codeJSON       = "INVALID_JSON"
	codeType       = "UNKNOWN_TYPE"
	codeValidation = "VALIDATION_ERROR"
	codeExecution  = "EXECUTION_ERROR"
	codeFull       = "CAPACITY_REACHED"
	codeFactory    = "FACTORY_ERROR"
	codeSession    = "SESSION_ERROR"
)

// Types of frames.
const (
	typeReset       = "reset"
	typeStep        = "step"
	typeState       = "state"
	typeClose       = "close"
	typeMCP         = "mcp"
	typeObservation = "observation"
	typeError       = "error"
)

// A frame is one message of an episode, in either direction.
type frame struct {
	Type string `json:"type"`
	Data any    `json:"data"`
}

// errorData is what an error frame says.
type errorData struct {
	Message string   `json:"message"`
	Code    string   `json:"code"`
	Errors  []detail `json:"errors,omitempty"`
	Active  *int     `json:"active_sessions,omitempty"`
	Most    *int     `json:"max_sessions,omitempty"`
}

// A mistake is of a message that is not what it must be.
type mistake struct {
	at      string // in the message, with dots
	message string
}

func (m *mistake) Error() string {
	if m.at == "" {
		return m.message
	}
	return m.at + ": " + m.message
}

// A detail is a mistake as OpenEnv's own server tells it.
type detail struct {
	Type string   `json:"type"`
	Loc  []string `json:"loc"`
	Msg  string   `json:"msg"`
}

func (m *mistake) detail() detail {
	loc := []string{}
	if m.at != "" {
		loc = strings.Split(m.at, ".")
	}
	return detail{Type: "value_error", Loc: loc, Msg: m.message}
}

// A failure ends an episode.
type failure struct {
	code    string
	message string
	cause   error // as the API says it; nil for a failed world
}

func (f *failure) Error() string { return f.message }

// A refusal is of a step that was not made; the episode goes on.
type refusal struct{ cause error }

func (r *refusal) Error() string { return r.cause.Error() }
func (r *refusal) Unwrap() error { return r.cause }

// errorFrame tells an error. It reports whether the episode is over.
func errorFrame(err error) (f frame, over bool) {
	var full *fullError
	var bad *mistake
	var no *refusal
	var fail *failure
	d := errorData{Message: err.Error(), Code: codeSession}
	switch {
	case errors.As(err, &full):
		d.Code, d.Active, d.Most = codeFull, &full.active, &full.most
		over = true
	case errors.As(err, &bad):
		d.Code, d.Errors = codeValidation, []detail{bad.detail()}
	case errors.As(err, &no):
		d.Code = codeExecution
	case errors.As(err, &fail):
		d.Code, over = fail.code, true
	default:
		over = true
	}
	return frame{typeError, d}, over
}

// A reset is what a reset asks for.
type reset struct {
	episode string // empty for one that is made up
	params  json.RawMessage
}

const maxEpisodeID = 255 // characters

// readReset reads the parameters of a reset, which may be any; nothing is none.
func readReset(data []byte) (reset, *mistake) {
	if len(strings.TrimSpace(string(data))) == 0 || string(data) == "null" {
		return reset{}, nil
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return reset{}, &mistake{"", "the parameters of a reset must be an object"}
	}
	out := reset{params: data}
	if raw, ok := all["episode_id"]; ok && string(raw) != "null" {
		if json.Unmarshal(raw, &out.episode) != nil || out.episode == "" || utf8.RuneCountInString(out.episode) > maxEpisodeID {
			return reset{}, &mistake{"episode_id", fmt.Sprintf("must be a string of 1 to %d characters", maxEpisodeID)}
		}
	}
	if raw, ok := all["seed"]; ok && string(raw) != "null" {
		var seed int64
		if json.Unmarshal(raw, &seed) != nil || seed < 0 {
			return reset{}, &mistake{"seed", "must be a whole number, and not below 0"}
		}
	}
	return out, nil
}

// An action is what a step does.
type action struct {
	Type      string          `json:"type"`
	Tool      string          `json:"tool_name"`
	Arguments json.RawMessage `json:"arguments"`
	Metadata  json.RawMessage `json:"metadata"`

	timeout string        // as in api.CallRequest
	from    *http.Request // what it came in by
}

// Types of actions.
const (
	actList = "list_tools"
	actCall = "call_tool"
)

func readAction(data []byte) (action, *mistake) {
	var a action
	if len(data) == 0 || string(data) == "null" {
		return a, &mistake{"data", "is missing; an action is {\"type\": \"list_tools\"} or {\"type\": \"call_tool\", \"tool_name\": ..., \"arguments\": {...}}"}
	}
	if err := decode(data, &a); err != nil {
		return a, &mistake{"", "unreadable action: " + strings.TrimPrefix(err.Error(), "json: ")}
	}
	switch {
	case a.Type != actList && a.Type != actCall:
		return a, &mistake{"type", "must be " + actList + " or " + actCall}
	case a.Type == actList:
	case a.Tool == "":
		return a, &mistake{"tool_name", "must name a tool"}
	case !isObject(a.Arguments):
		return a, &mistake{"arguments", "must be an object"}
	}
	return a, nil
}

// isObject reports whether an optional value is an object, or not there.
func isObject(raw json.RawMessage) bool {
	return len(raw) == 0 || string(raw) == "null" || raw[0] == '{'
}

// readStepRequest reads the body of a step over HTTP.
func readStepRequest(body []byte) (action, *mistake) {
	var in struct {
		Action  json.RawMessage `json:"action"`
		Timeout *float64        `json:"timeout_s"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return action{}, &mistake{"body", "is not JSON that can be read: " + strings.TrimPrefix(err.Error(), "json: ")}
	}
	if len(in.Action) == 0 {
		return action{}, &mistake{"body.action", "is missing"}
	}
	a, bad := readAction(in.Action)
	if bad != nil {
		bad.at = strings.TrimSuffix("body.action."+bad.at, ".")
		return a, bad
	}
	if in.Timeout != nil {
		if *in.Timeout <= 0 || *in.Timeout > maxTimeout.Seconds() || math.IsNaN(*in.Timeout) {
			return a, &mistake{"body.timeout_s", fmt.Sprintf("must be above 0 and at most %d", int(maxTimeout.Seconds()))}
		}
		a.timeout = max(time.Duration(*in.Timeout*float64(time.Second)), time.Millisecond).String()
	}
	return a, nil
}

// maxTimeout is the longest that a caller may give a step; servers have less.
const maxTimeout = 24 * time.Hour

// An outcome is the answer to a reset or a step.
type outcome struct {
	Observation any            `json:"observation"`
	Reward      *reward        `json:"reward"`
	Done        bool           `json:"done"`
	Metadata    map[string]any `json:"metadata,omitempty"`
}

// A reward is a number that is written with a fraction: Python tells 1 and 1.0 apart.
type reward float64

func (r reward) MarshalJSON() ([]byte, error) {
	b, err := json.Marshal(float64(r))
	if err == nil && !strings.ContainsAny(string(b), ".eE") {
		b = append(b, ".0"...)
	}
	return b, err
}

// observed is an observation with metadata alone.
type observed struct {
	Metadata map[string]any `json:"metadata"`
}

// toolsObserved is the observation of list_tools.
type toolsObserved struct {
	Metadata map[string]any `json:"metadata"`
	Tools    []tool         `json:"tools"`
}

// A tool is one of an environment's.
type tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"`
}

// callObserved is the observation of call_tool. Either the result or the error is null.
type callObserved struct {
	Metadata map[string]any `json:"metadata"`
	Tool     string         `json:"tool_name"`
	Result   *result        `json:"result"`
	Error    *toolError     `json:"error"`
}

// A toolError says why a tool gave no result.
type toolError struct {
	Type    string `json:"error_type"`
	Message string `json:"message"`
}

// Types of tool errors.
const (
	errExecution = "execution_error"
	errArguments = "invalid_args"
	errNotFound  = "tool_not_found"
	errTimeout   = "timeout"
)

// A result is a CallToolResult in OpenEnv's words.
type result struct {
	Content    json.RawMessage `json:"content"`
	Structured json.RawMessage `json:"structured_content"`
	Meta       json.RawMessage `json:"meta"`
	Data       json.RawMessage `json:"data"`
	IsError    bool            `json:"is_error"`
}

// stateData is the state of an episode.
type stateData struct {
	Episode     string `json:"episode_id"`
	Steps       int    `json:"step_count"`
	Environment string `json:"environment"`
	Session     string `json:"session"`
}
