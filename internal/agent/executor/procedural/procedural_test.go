//go:build unix

package procedural

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

func program(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("testdata/program.sh")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSuite(t *testing.T) {
	executortest.Suite{Make: func(t *testing.T, c executortest.Case, job *executor.Job) executor.Executor {
		return New(executor.Options{Program: executor.Program{Command: "sh", Args: []string{program(t), string(c)}}})
	}}.Run(t)
}

func TestFlags(t *testing.T) {
	for _, tt := range []struct {
		json string
		want []string
	}{
		{`{}`, nil},
		{`{"b":"two words","a":"x"}`, []string{"--a", "x", "--b", "two words"}},
		{`{"yes":true,"no":false,"none":null}`, []string{"--yes"}},
		{`{"n":10,"big":12345678901234567890,"f":0.5,"neg":-3}`, []string{"--big", "12345678901234567890", "--f", "0.5", "--n", "10", "--neg=-3"}},
		{`{"list":["a","b",3,true],"empty":[]}`, []string{"--list", "a,b,3,true"}},
		{`{"list":["-a"]}`, []string{"--list=-a"}},
		{`{"dash":"--delete","minus":"-","empty":""}`, []string{"--dash=--delete", "--empty=", "--minus=-"}},
		{`{"o":{"k":"<v>"}}`, []string{"--o", `{"k":"<v>"}`}},
		{`{"prompt":"${env.SECRET} $(id) ; ls"}`, []string{"--prompt", "${env.SECRET} $(id) ; ls"}},
	} {
		dec := json.NewDecoder(strings.NewReader(tt.json))
		dec.UseNumber()
		job := executor.Job{Dir: "/"}
		if err := dec.Decode(&job.Parameters); err != nil {
			t.Fatal(err)
		}
		plan, err := New(executor.Options{Program: executor.Program{Command: "x", Args: []string{"first"}}}).Plan(job)
		if err != nil || !slices.Equal(plan.Args, append([]string{"first"}, tt.want...)) {
			t.Errorf("%s: %q, %v, want %q", tt.json, plan.Args, err, tt.want)
		}
	}
	for params, want := range map[string]string{
		`{"list":["a,b"]}`:    "element 0 has a comma",
		`{"-x":1}`:            "can't be the name of a flag",
		`{"a=b":1}`:           "can't be the name of a flag",
		`{"":1}`:              "can't be the name of a flag",
		`{"zero":"a\u0000b"}`: "zero byte",
	} {
		var job executor.Job
		if err := json.Unmarshal([]byte(params), &job.Parameters); err != nil {
			t.Fatal(err)
		}
		if _, err := New(executor.Options{Program: executor.Program{Command: "x"}}).Plan(job); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", params, err, want)
		}
	}
}

func TestConfig(t *testing.T) {
	free, fixed := New(executor.Options{}), New(executor.Options{Name: "report", Program: executor.Program{Command: "x"}})
	for _, tt := range []struct {
		x      *Executor
		config map[string]any
		want   string
	}{
		{free, map[string]any{"command": "x", "args": []any{"a"}}, ""},
		{free, nil, "executor_config.command: the program is missing"},
		{free, map[string]any{"command": "x", "args": "a"}, "executor_config.args: must be a list"},
		{free, map[string]any{"command": "x", "args": []any{1}}, "executor_config.args[0]: must be a string"},
		{free, map[string]any{"command": "x", "arg": 1}, "executor_config.arg: unknown key"},
		{fixed, nil, ""},
		{fixed, map[string]any{"command": "y"}, "leave it out"},
	} {
		if err := tt.x.Check(tt.config); tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%v: %v, want %q", tt.config, err, tt.want)
		}
	}
	if _, err := fixed.Plan(executor.Job{Resume: true}); err == nil {
		t.Error("it was resumed")
	}
}

func TestResults(t *testing.T) {
	for _, tt := range []struct {
		exit       executor.Exit
		data, want string
	}{
		{executor.Exit{Stdout: []byte(" {\"a\": 12345678901234567890}\n")}, `{"a": 12345678901234567890}`, ""},
		{executor.Exit{Stdout: []byte("[1]\n")}, "[1]", ""},
		{executor.Exit{Stdout: []byte("hello\n"), Stderr: []byte("w")}, `{"return_code":0,"stdout":"hello\n","stderr":"w"}`, ""},
		{executor.Exit{}, `{"return_code":0,"stdout":"","stderr":""}`, ""},
		{executor.Exit{Stdout: []byte("[1]"), Cut: true}, `{"return_code":0,"stdout":"[1]","stderr":"","stdout_cut":true}`, ""},
		{executor.Exit{Status: 3, Stdout: []byte("half"), Stderr: []byte("why")}, `{"return_code":3,"stdout":"half","stderr":"why"}`, "exited with status 3: why"},
		{executor.Exit{Status: 3, Stdout: []byte(`{"a":1}`)}, `{"a":1}`, "exited with status 3"},
	} {
		r, err := New(executor.Options{}).Read(executor.Job{}).End(tt.exit)
		if string(r.Data) != tt.data || (err != nil) != (tt.want != "") {
			t.Errorf("%+v: %s, %v, want %s", tt.exit, r.Data, err, tt.data)
		}
		testkit.Has(t, "the error", fmt.Sprint(err), tt.want)
	}
}
