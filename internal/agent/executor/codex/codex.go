// Package codex is the executor that runs OpenAI's Codex command line, codex exec.
//
// The program gets the run's MCP servers and no others. Its own tools are off, except
// those that read resources of these servers, unless executor_config.shell lets it run
// commands. It reads no config and no rules of the user or the project, and no AGENTS.md of
// the project. What the prompt parameter says is the message, on standard input; without
// that parameter it is all parameters as JSON. The system prompt replaces the program's
// instructions, at each run.
//
// Where the environment that it is given has a key (CODEX_API_KEY) its own files, with
// the conversations, are in the session's folder. Otherwise they are in the user's, with
// the user's login, and the AGENTS.md there is read.
//
// What a conversation has used is told by its first run alone: later the program counts
// the whole conversation again.
//
// executor_config:
//
//	model  the model; the program's default
//	shell  read-only or workspace-write: it may run commands, in its own sandbox
package codex

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/internal/agent/executor"
)

// Executor runs Codex. Make it with New.
type Executor struct{ opts executor.Options }

var _ executor.Executor = (*Executor)(nil)

// New returns an executor.
func New(opts executor.Options) *Executor {
	return &Executor{opts: opts.Or("codex", "codex")}
}

// Name implements executor.Executor.
func (x *Executor) Name() string { return x.opts.Name }

// apiKey is the variable with which the program needs no login of the user's.
const apiKey = "CODEX_API_KEY"

// Secrets implements executor.Executor.
func (x *Executor) Secrets() []string { return x.opts.Secrets(apiKey) }

// settings are executor_config.
type settings struct{ model, shell string }

func settingsOf(config map[string]any) (s settings, err error) {
	for _, key := range slices.Sorted(maps.Keys(config)) {
		text, _ := config[key].(string)
		switch key {
		case "model":
			if s.model = text; text == "" {
				return s, errors.New("executor_config.model: must be the name of a model")
			}
		case "shell":
			if s.shell = text; text != "read-only" && text != "workspace-write" {
				return s, errors.New("executor_config.shell: must be read-only or workspace-write")
			}
		default:
			return s, fmt.Errorf("executor_config.%s: unknown key; there are model and shell", key)
		}
	}
	return s, nil
}

// Check implements executor.Executor.
func (x *Executor) Check(config map[string]any) error {
	_, err := settingsOf(config)
	return err
}

// Files in the run's folder.
const (
	systemFile = "system.txt"
	schemaFile = "schema.json"
)

// own are the features that give the program tools, or text, of its own.
var own = []string{
	"apps", "browser_use", "browser_use_external", "computer_use", "goals", "hooks", "image_generation", "in_app_browser", "multi_agent",
	"plugins", "remote_plugin", "shell_snapshot", "skill_mcp_dependency_install", "skill_search", "sleep_tool", "tool_suggest", "view_image", "workspace_dependencies",
}

// shell are the features that run commands.
var shell = []string{"shell_tool", "unified_exec"}

// homeDir is the variable for the folder of the program's own files.
const homeDir = "CODEX_HOME"

// Plan implements executor.Executor. The program does not make the folder for its own
// files, so Plan does.
func (x *Executor) Plan(job executor.Job) (executor.Plan, error) {
	s, err := settingsOf(job.Config)
	if err != nil {
		return executor.Plan{}, err
	}
	message, err := job.Message()
	if err != nil {
		return executor.Plan{}, err
	}
	env := x.opts.Program.Environment(job)
	x.opts.Login(env, apiKey)
	if env[homeDir] == "" && env[apiKey] != "" {
		env[homeDir] = filepath.Join(job.Dir, ".codex")
		if err := os.MkdirAll(env[homeDir], 0o700); err != nil {
			return executor.Plan{}, fmt.Errorf("make the folder of Codex in the session's: %w", err)
		}
	}
	servers, err := serversOf(job.Agent.Servers, env)
	if err != nil {
		return executor.Plan{}, err
	}
	args := append(slices.Clone(x.opts.Program.Args), "exec")
	if job.ExecutorSession != "" {
		args = append(args, "resume")
	}
	args = append(args, "--json", "--ignore-user-config", "--ignore-rules", "--skip-git-repo-check")
	off := own
	if s.shell == "" {
		off = append(slices.Clone(own), shell...)
		s.shell = "read-only"
	}
	for _, feature := range off {
		args = append(args, "--disable", feature)
	}
	for _, set := range []string{
		`approval_policy="never"`, `sandbox_mode=` + quoted(s.shell), `shell_environment_policy.inherit="core"`,
		`project_doc_max_bytes=0`, `web_search="disabled"`, `skills.include_instructions=false`, `skills.bundled.enabled=false`,
		`include_environment_context=false`, `include_permissions_instructions=false`, `include_apps_instructions=false`,
		`model_instructions_file=` + quoted(filepath.Join(job.Folder, systemFile)), `mcp_servers=` + servers,
	} {
		args = append(args, "-c", set)
	}
	if s.model != "" {
		args = append(args, "-c", "model="+quoted(s.model))
	}
	files := map[string][]byte{systemFile: []byte(job.Agent.SystemPrompt)}
	if len(job.Agent.Result) > 0 {
		files[schemaFile] = job.Agent.Result
		args = append(args, "--output-schema", filepath.Join(job.Folder, schemaFile))
	}
	if job.ExecutorSession != "" {
		if strings.HasPrefix(job.ExecutorSession, "-") {
			return executor.Plan{}, fmt.Errorf("%q can't be a conversation of Codex", job.ExecutorSession)
		}
		args = append(args, job.ExecutorSession)
	}
	return executor.Plan{
		Command: x.opts.Program.Command, Args: append(args, "-"), Env: env, Dir: job.WorkDir(), Stdin: []byte(message), Files: files,
	}, nil
}

var serverNames = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// serversOf is the servers as a table in TOML. The values of headers are in the
// environment, since every user can read arguments.
func serversOf(servers map[string]executor.Server, env map[string]string) (string, error) {
	var tables []string
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		if !serverNames.MatchString(name) {
			return "", fmt.Errorf("the server %q can't be given to Codex; name it with letters, digits, _ and -", name)
		}
		var headers []string
		for _, header := range slices.Sorted(maps.Keys(servers[name].Headers)) {
			variable := fmt.Sprintf("TINE_HEADER_%d", len(env))
			env[variable] = servers[name].Headers[header]
			headers = append(headers, quoted(header)+"="+quoted(variable))
		}
		tables = append(tables, fmt.Sprintf(`%s={url=%s,env_http_headers={%s},default_tools_approval_mode="approve",required=true,startup_timeout_sec=60,tool_timeout_sec=86400}`,
			quoted(name), quoted(servers[name].URL), strings.Join(headers, ",")))
	}
	return "{" + strings.Join(tables, ",") + "}", nil
}

// quoted is a string of TOML, whose escapes are those of JSON.
func quoted(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic(err) // a string
	}
	return strings.ReplaceAll(strings.TrimSpace(b.String()), "\x7f", `\u007f`)
}

// Read implements executor.Executor.
func (x *Executor) Read(job executor.Job) executor.Reader {
	return &reader{schema: job.Agent.Result, resumed: job.ExecutorSession != ""}
}
