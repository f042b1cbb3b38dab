package hook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/tine-mcp/tine/api"
)

// Hooks by their keys in a blueprint.
const (
	Start  = "on_run_start"
	Finish = "on_run_finish"
)

// A Document is what a hook gets.
type Document struct {
	Hook        string `json:"hook"`
	Run         string `json:"run_id"`
	Session     string `json:"session_id"`
	Agent       string `json:"agent_name"`
	Resume      bool   `json:"resume"`
	Callback    bool   `json:"callback,omitempty"` // the prompt tells how other agents ended
	Parameters  any    `json:"parameters"`
	ProjectDir  string `json:"project_dir,omitempty"`
	Parent      string `json:"parent_session_id,omitempty"`
	ParentAgent string `json:"parent_agent_name,omitempty"`

	// After the run.
	State  string         `json:"state,omitempty"`
	Result *api.RunResult `json:"result,omitempty"`
	Error  *api.Error     `json:"error,omitempty"`
	Usage  *api.RunUsage  `json:"usage,omitempty"`
}

// An Answer is what a hook before a run has said.
type Answer struct {
	// Parameters take the place of the run's; nil for no change.
	Parameters map[string]any
	// Refused says that the run must not start, for a reason.
	Refused bool
	Reason  string
}

const mostReason = 2 << 10 // bytes

var errAnswer = errors.New(`it must print nothing, or one JSON object: {"parameters": {...}} or {"refuse": "why"}`)

// ReadAnswer reads what a hook has printed. Printing nothing changes nothing.
func ReadAnswer(output []byte) (Answer, error) {
	output = bytes.TrimSpace(output)
	if len(output) == 0 {
		return Answer{}, nil
	}
	if output[0] != '{' {
		return Answer{}, errAnswer
	}
	var said struct {
		Parameters map[string]any `json:"parameters"`
		Refuse     *string        `json:"refuse"`
	}
	d := json.NewDecoder(bytes.NewReader(output))
	d.UseNumber() // which keeps all digits
	d.DisallowUnknownFields()
	if err := d.Decode(&said); err != nil {
		return Answer{}, fmt.Errorf("%w; what it printed: %v", errAnswer, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return Answer{}, fmt.Errorf("%w; it printed more than one", errAnswer)
	}
	if said.Refuse == nil {
		return Answer{Parameters: said.Parameters}, nil
	}
	if said.Parameters != nil {
		return Answer{}, fmt.Errorf("%w; it printed both", errAnswer)
	}
	return Answer{Refused: true, Reason: brief(*said.Refuse)}, nil
}

// brief is a reason as it may stand in an error.
func brief(reason string) string {
	reason = strings.TrimSpace(strings.ToValidUTF8(reason, "\uFFFD"))
	if reason == "" {
		return "it gave no reason"
	}
	if len(reason) > mostReason {
		reason = strings.ToValidUTF8(reason[:mostReason], "") + "..."
	}
	return reason
}
