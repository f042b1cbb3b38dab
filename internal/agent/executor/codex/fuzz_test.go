package codex

import (
	"encoding/json"
	"testing"

	"github.com/tine-mcp/tine/internal/agent/executor"
)

func FuzzReader(f *testing.F) {
	for _, seed := range []string{
		`{"type":"item.completed","item":{"type":"mcp_tool_call","result":{"content":[{"text":"x"}]}}}`,
		`{"type":"item.started","item":{"type":"command_execution","command":"ls"}}`,
		`{"type":"turn.failed","error":{"message":"x"}}`,
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
