package agent

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/runner"
)

// mostResult bounds the result of a run, in bytes.
const mostResult = 4 << 20

// outcome is what a run has come to by the report of its end.
func outcome(r *run, rep runner.Report) (state string, result *api.RunResult, failure *api.Error) {
	result, failure = rep.Result, rep.Error
	if result != nil && len(result.Text)+len(result.Data) > mostResult {
		size := len(result.Text) + len(result.Data)
		result = nil
		if failure == nil {
			failure = &api.Error{Kind: api.KindTool, Message: fmt.Sprintf("the result has %d bytes and may have %d; have the agent write what is long to a file", size, mostResult)}
		}
	}
	if result != nil && len(result.Data) > 0 && !json.Valid(result.Data) {
		result = &api.RunResult{Text: result.Text}
		if failure == nil {
			failure = &api.Error{Kind: api.KindTool, Message: "the data of the result is no JSON"}
		}
	}
	if failure == nil && r.State != api.RunStopping {
		if result == nil {
			result = &api.RunResult{}
		}
		if why := unfit(r.d.Blueprint.Result, result.Data); why != "" {
			failure = &api.Error{Kind: api.KindTool, Message: why}
		}
	}
	if failure != nil {
		return api.RunFailed, result, failure
	}
	return api.RunCompleted, result, nil
}

// unfit says why a result does not fit the schema of its blueprint; empty where it does.
func unfit(schema, data json.RawMessage) string {
	if len(schema) == 0 {
		return ""
	}
	if len(data) == 0 {
		return "the agent gave a text and no data, and its blueprint has a schema for the result"
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(schema, &s); err != nil {
		return fmt.Sprintf("the blueprint's schema for the result can't be read: %v", err)
	}
	checked, err := s.Resolve(nil)
	if err != nil {
		return fmt.Sprintf("the blueprint's schema for the result can't be used: %v", err)
	}
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		return fmt.Sprintf("the data of the result can't be read: %v", err)
	}
	if err := checked.Validate(value); err != nil {
		return "the result does not fit the blueprint's schema: " + strings.ToValidUTF8(clip(err.Error(), 2000), "")
	}
	return ""
}

func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}
