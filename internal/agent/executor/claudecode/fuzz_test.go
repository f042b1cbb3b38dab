package claudecode

import (
	"encoding/json"
	"testing"

	"github.com/tine-mcp/tine/internal/agent/executor"
)

func FuzzReader(f *testing.F) {
	for _, seed := range []string{
		`{"type":"assistant","session_id":"x","message":{"content":[{"type":"tool_use","id":"1","name":"n","input":{}}]}}`,
		`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"1","content":"text"}]}}`,
		`{"type":"result","subtype":"success","result":"x","structured_output":{}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		r := New(executor.Options{}).Read(executor.Job{Agent: executor.Agent{Result: json.RawMessage("{}")}})
		for _, e := range append(r.Line(line), r.Line(line)...) {
			if !json.Valid(e.Data) || e.Type == "" {
				t.Errorf("an event of type %q with the data %q", e.Type, e.Data)
			}
		}
		_, _ = r.End(executor.Exit{}) // may be an error
	})
}
