//go:build unix

package command

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/agent/executor"
	"github.com/tine-mcp/tine/internal/agent/executor/executortest"
	"github.com/tine-mcp/tine/internal/testkit"
)

func program(t *testing.T, c executortest.Case) executor.Program {
	t.Helper()
	path, err := filepath.Abs("testdata/program.sh")
	if err != nil {
		t.Fatal(err)
	}
	return executor.Program{Command: "sh", Args: []string{path, string(c)}}
}

func TestSuite(t *testing.T) {
	executortest.Suite{Make: func(t *testing.T, c executortest.Case, job *executor.Job) executor.Executor {
		return New(executor.Options{Program: program(t, c)})
	}}.Run(t)
}

func TestEvents(t *testing.T) {
	job := executortest.Job(t)
	x := New(executor.Options{Program: program(t, executortest.Answers)})
	plan, err := x.Plan(job)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range executortest.Read(x.Read(job), executortest.Run(t, job, plan).Lines) {
		got = append(got, e.Type+" "+string(e.Data)+e.ExecutorSession)
	}
	want := []string{
		`state {"executor_session_id":"conversation-1"}conversation-1`,
		`text {"text":"Let me see."}`,
		`tool {"id":"1","name":"multiply","arguments":{"a":6,"b":7}}`,
		`tool {"id":"1","done":true,"text":"42"}`,
		`usage {"input_tokens":10,"output_tokens":3}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

// TestOddType tells once of lines with a type that is none. They may be the result.
func TestOddType(t *testing.T) {
	r := New(executor.Options{}).Read(executortest.Job(t))
	var got []string
	for _, line := range []string{`{"type":"txet","text":"x"}`, `{"n":1,"type":"other"}`, `{"type": "resutl"}`, `{"type":"result","result":"done"}`} {
		for _, e := range r.Line([]byte(line)) {
			got = append(got, e.Type+" "+string(e.Data))
		}
	}
	if len(got) != 1 || !strings.HasPrefix(got[0], "stderr ") || !strings.Contains(got[0], `type \"txet\"`) {
		t.Errorf("events %q", got)
	}
	if res, err := r.End(executor.Exit{}); err != nil || res.Text != "done" {
		t.Error(res, err)
	}
}

func TestDocuments(t *testing.T) {
	job := executor.Job{
		Run: "run_1", Session: "ses_x", Resume: true, ExecutorSession: "conv", Parameters: map[string]any{"prompt": "<hi>"}, ProjectDir: "/p",
		Agent: executor.Agent{Name: "a", SystemPrompt: "Be brief.", Servers: map[string]executor.Server{
			"fs": {Type: "http", URL: "http://x/s/ses_x/mcp/fs?a=1&b=2", Headers: map[string]string{"Authorization": "Bearer t"}}}},
		Config: map[string]any{"k": "v"}, Metadata: map[string]any{"runner_id": "r"},
	}
	const servers = `"mcp_servers":{"fs":{"type":"http","url":"http://x/s/ses_x/mcp/fs?a=1&b=2","headers":{"Authorization":"Bearer t"}}}`
	for schema, want := range map[string]string{
		"1.0": `{"schema_version":"1.0","mode":"resume","session_id":"ses_x","prompt":"<hi>","project_dir":"/p","agent_name":"a"}`,
		"2.0": `{"schema_version":"2.0","mode":"resume","session_id":"ses_x","executor_session_id":"conv","prompt":"<hi>","project_dir":"/p","agent_blueprint":{"name":"a","system_prompt":"Be brief.",` + servers + `}}`,
		"2.2": `{"schema_version":"2.2","mode":"resume","session_id":"ses_x","executor_session_id":"conv","parameters":{"prompt":"<hi>"},"prompt":"<hi>","project_dir":"/p","agent_name":"a","agent_blueprint":{"name":"a","system_prompt":"Be brief.",` + servers + `},"executor_config":{"k":"v"},"metadata":{"runner_id":"r"}}`,
	} {
		got, err := document(schema, job)
		if err != nil || string(got) != want+"\n" {
			t.Errorf("%s: %s, %v, want %s", schema, got, err, want)
		}
	}
	job.Parameters["depth"] = 3
	for schema, want := range map[string]string{"1.0": `can't be given "depth"`, "2.0": `can't be given "depth"`, "2.2": "<nil>"} {
		_, err := document(schema, job)
		testkit.Has(t, "the error of "+schema, fmt.Sprint(err), want)
	}
	for config, want := range map[string]string{
		`{"command":"x","schema":"2.1"}`:    "executor_config.schema: must be one of",
		`{"command":"x","schema":2.0}`:      "executor_config.schema: must be one of",
		`{"command":"x","persistent":"no"}`: "executor_config.persistent: must be",
		`{}`:                                "executor_config.command: the program is missing",
		`{"command":"x","schema":"1.0","persistent":true,"theirs":1}`: "<nil>",
	} {
		var c map[string]any
		if err := json.Unmarshal([]byte(config), &c); err != nil {
			t.Fatal(err)
		}
		testkit.Has(t, "the error of "+config, fmt.Sprint(New(executor.Options{}).Check(c)), want)
	}
}

func TestResults(t *testing.T) {
	for _, tt := range []struct {
		printed    string
		exit       executor.Exit
		text, data string
		err        string
	}{
		{printed: "plain\ntext\n", text: "plain\ntext"},
		{printed: `{"a": 1}`, data: `{"a": 1}`},
		{printed: "{\n \"a\": 1\n}", data: "{\n \"a\": 1\n}"},
		{printed: "so:\n{\"a\":1}\n", text: "so:", data: `{"a":1}`},
		{printed: "{\"a\":1}\nso\n", text: "{\"a\":1}\nso"},
		{printed: `{"result_text":"t","result_data":{"a":1}}`, text: "t", data: `{"a":1}`},
		{printed: "noise\n" + `{"type":"result","result":{"result_text":"t","result_data":null}}`, text: "t"},
		{printed: `{"type":"result","result":"one"}` + "\n" + `{"type":"result","result":"two"}`, text: "two"},
		{printed: `{"type":"unknown","x":1}`, data: `{"type":"unknown","x":1}`},
		{printed: `{"type":"error","message":"broken"}`, err: "broken"},
		{printed: `{"type":"result","result":"one"}`, exit: executor.Exit{Status: 1}, err: "exited with status 1"},
		{printed: "x", exit: executor.Exit{Long: 1}, err: "lines that are too long"},
		{printed: `{"type":"result","result":"one"}`, exit: executor.Exit{Long: 1}, text: "one"},
		{printed: `{"type":"result","result":{"result_te`, err: "cut off"},
		{printed: `{"type":"result","result":"x","error":5}`, err: "can't be read"},
		{printed: `{"type":"text","te` + "\n" + `{"type":"result","result":"one"}`, text: "one"},
		{printed: "{\"type\": \"object\",\n\"n\": 1}", data: "{\"type\": \"object\",\n\"n\": 1}"},
		{printed: strings.Repeat("x", maxPlain), err: "printed more than"},
		{},
	} {
		r := New(executor.Options{}).Read(executor.Job{})
		for line := range strings.Lines(tt.printed) {
			r.Line([]byte(strings.TrimSuffix(line, "\n")))
		}
		got, err := r.End(tt.exit)
		if got.Text != tt.text || string(got.Data) != tt.data || (err != nil) != (tt.err != "") {
			t.Errorf("%.60q: text %q, data %q, %v", tt.printed, got.Text, got.Data, err)
		}
		testkit.Has(t, "the error", fmt.Sprint(err), tt.err)
	}
}

func TestTurner(t *testing.T) {
	read := func(lines ...string) (executor.Turner, string) {
		r := New(executor.Options{}).Read(executor.Job{Config: map[string]any{"persistent": true}}).(executor.Turner)
		for _, l := range lines {
			r.Line([]byte(l))
		}
		result, err, ok := r.Turn()
		return r, fmt.Sprint(result.Text, " ", string(result.Data), " ", err, " ", ok)
	}
	for want, lines := range map[string][]string{
		"  <nil> false":       {"thinking"},
		"done  <nil> true":    {"thinking", `{"type":"turn_complete","result":"done"}`},
		` {"a":1} <nil> true`: {`{"type":"turn_complete","result":{"a":1}}`},
		"said  <nil> true":    {"said", `{"type":"turn_complete"}`},
		"  broken true":       {`{"type":"turn_complete","error":"broken"}`},
	} {
		if _, got := read(lines...); got != want {
			t.Errorf("%q: %q, want %q", lines, got, want)
		}
	}
	r, _ := read("thinking")
	if _, err := r.End(executor.Exit{}); err == nil || !strings.Contains(err.Error(), "before it completed the turn") {
		t.Errorf("its end in a turn: %v", err)
	}
	next, err := r.Next(executor.Job{Parameters: map[string]any{"prompt": "<more>"}})
	if string(next) != `{"parameters":{"prompt":"<more>"},"type":"turn"}`+"\n" || err != nil || string(r.Shutdown()) != `{"type":"shutdown"}`+"\n" {
		t.Errorf("it sends %s, %v and %s", next, err, r.Shutdown())
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte(`{"type":"tool","arguments":{}}`))
	f.Add([]byte("plain"))
	f.Fuzz(func(t *testing.T, line []byte) {
		r := New(executor.Options{}).Read(executor.Job{Agent: executor.Agent{Result: json.RawMessage(executortest.Schema)}})
		for _, e := range r.Line(line) {
			if !json.Valid(e.Data) {
				t.Errorf("data %q", e.Data)
			}
		}
		_, _ = r.End(executor.Exit{})
	})
}
