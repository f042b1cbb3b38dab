// Package claudecode is the executor that runs Claude Code's command line in print mode.
//
// The program gets the run's MCP servers and no others, and none of its own tools unless
// executor_config.tools names them. It reads no settings, hooks, memory or CLAUDE.md
// files of the user or the project. What the prompt parameter says is the message, on
// standard input; without that parameter it is all parameters as JSON. The system prompt
// replaces the program's own, at each run: one that has changed counts at a resume. Versions
// from before 2.1.325 may not know all of the options.
//
// The program keeps its conversations itself. Where the environment that it is given, or
// that of the gateway, has a key (ANTHROPIC_API_KEY and the like) they are in the session's
// folder; otherwise they are in the user's own, together with the user's login. It finds a
// conversation only from the folder that it was begun in, so a session always works in the
// same one. One that is gone begins anew, and the message says so.
//
// executor_config:
//
//	model           the model; the program's default
//	tools           a list of the program's own tools, such as Read or "Bash(git *)"; they
//	                run with the rights of the gateway's user
//	max_turns       how many requests one run may make
//	max_budget_usd  how much one run may cost
package claudecode

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tine-mcp/tine/internal/agent/executor"
)

// Executor runs Claude Code. Make it with New.
type Executor struct{ opts executor.Options }

var _ executor.Executor = (*Executor)(nil)

// New returns an executor.
func New(opts executor.Options) *Executor {
	return &Executor{opts: opts.Or("claude-code", "claude")}
}

// Name implements executor.Executor.
func (x *Executor) Name() string { return x.opts.Name }

// Secrets implements executor.Executor.
func (x *Executor) Secrets() []string { return x.opts.Secrets(login...) }

// settings are executor_config.
type settings struct {
	model  string
	tools  []string
	turns  int
	budget float64
}

func settingsOf(config map[string]any) (s settings, err error) {
	for _, key := range slices.Sorted(maps.Keys(config)) {
		value := config[key]
		switch key {
		case "model":
			if s.model, _ = value.(string); s.model == "" || strings.HasPrefix(s.model, "-") {
				return s, errors.New("executor_config.model: must be the name of a model")
			}
		case "tools":
			list, ok := value.([]any)
			if !ok {
				return s, errors.New("executor_config.tools: must be a list of names")
			}
			for n, v := range list {
				tool, _ := v.(string)
				if tool == "" || strings.HasPrefix(tool, "-") || strings.HasPrefix(tool, "mcp__") {
					return s, fmt.Errorf("executor_config.tools[%d]: must be the name of one of the program's own tools", n)
				}
				s.tools = append(s.tools, tool)
			}
		case "max_turns":
			turns, ok := number(value)
			if s.turns = int(turns); !ok || turns < 1 || turns > 1e6 || float64(s.turns) != turns {
				return s, errors.New("executor_config.max_turns: must be a whole number from 1 on")
			}
		case "max_budget_usd":
			budget, ok := number(value)
			if s.budget = budget; !ok || !(budget > 0) || budget > 1e9 {
				return s, errors.New("executor_config.max_budget_usd: must be a number above 0")
			}
		default:
			return s, fmt.Errorf("executor_config.%s: unknown key; there are model, tools, max_turns and max_budget_usd", key)
		}
	}
	return s, nil
}

// number is a number as JSON or YAML gives it.
func number(v any) (float64, bool) {
	switch n := v.(type) {
	case float64:
		return n, true
	case int:
		return float64(n), true
	case int64:
		return float64(n), true
	case uint64:
		return float64(n), true
	case json.Number:
		f, err := n.Float64()
		return f, err == nil
	}
	return 0, false
}

// Check implements executor.Executor.
func (x *Executor) Check(config map[string]any) error {
	_, err := settingsOf(config)
	return err
}

// Files in the run's folder. They have what no argument may have: arguments are limited,
// and every user can read them.
const (
	systemFile  = "system.txt"
	serversFile = "mcp.json"
)

// toolTimeout is how long a call of a tool may take, in milliseconds: a day. The gateway
// has its own limits, and a tool that waits for an agent takes long.
const toolTimeout = "86400000"

// Plan implements executor.Executor.
func (x *Executor) Plan(job executor.Job) (executor.Plan, error) {
	s, err := settingsOf(job.Config)
	if err != nil {
		return executor.Plan{}, err
	}
	message, err := job.Message()
	if err != nil {
		return executor.Plan{}, err
	}
	servers := job.Agent.Servers
	if servers == nil {
		servers = map[string]executor.Server{}
	}
	config, err := json.Marshal(map[string]any{"mcpServers": servers})
	if err != nil {
		return executor.Plan{}, fmt.Errorf("the servers of the run: %w", err)
	}
	env := x.environment(job)
	gone := job.ExecutorSession != "" && x.gone(job.ExecutorSession, env)
	if gone {
		message = "(What was said in this session before is lost.)\n\n" + message
	}
	return executor.Plan{
		Command: x.opts.Program.Command,
		Args:    append(slices.Clone(x.opts.Program.Args), append(arguments(job, s), conversation(job, env, gone)...)...),
		Env:     env,
		Dir:     job.WorkDir(),
		Stdin:   []byte(message),
		Files:   map[string][]byte{systemFile: []byte(job.Agent.SystemPrompt), serversFile: config},
	}, nil
}

func arguments(job executor.Job, s settings) []string {
	args := []string{
		"--print", "--output-format", "stream-json", "--verbose",
		"--strict-mcp-config", "--mcp-config", filepath.Join(job.Folder, serversFile),
		"--setting-sources", "", "--disable-slash-commands",
		"--system-prompt-file", filepath.Join(job.Folder, systemFile),
		"--system-prompt-snapshot", "off", // a changed one counts at a resume
	}
	// In print mode nobody can be asked, so that what is there is allowed.
	own, allowed := []string{}, slices.Clone(s.tools)
	for _, tool := range s.tools {
		name, _, _ := strings.Cut(tool, "(")
		own = append(own, name)
	}
	for _, name := range slices.Sorted(maps.Keys(job.Agent.Servers)) {
		allowed = append(allowed, "mcp__"+toolName(name))
	}
	args = append(args, "--tools", strings.Join(own, ","))
	if len(allowed) > 0 {
		args = append(append(args, "--allowed-tools"), allowed...)
	}
	if s.model != "" {
		args = append(args, "--model="+s.model)
	}
	if s.turns > 0 {
		args = append(args, "--max-turns", strconv.Itoa(s.turns))
	}
	if s.budget > 0 {
		args = append(args, "--max-budget-usd", strconv.FormatFloat(s.budget, 'f', -1, 64))
	}
	if len(job.Agent.Result) > 0 {
		args = append(args, "--json-schema", string(job.Agent.Result))
	}
	return args
}

// toolName is a server's name in the names of its tools.
func toolName(server string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, server)
}

// conversation names the conversation, which goes on unless it is gone. The name of a new
// one is not that of one that was begun by an earlier attempt at the run and not told of:
// the program would refuse it.
func conversation(job executor.Job, env map[string]string, gone bool) []string {
	switch {
	case gone:
		return []string{"--session-id", job.ExecutorSession}
	case job.ExecutorSession != "":
		return []string{"--resume=" + job.ExecutorSession}
	}
	for n := 0; ; n++ {
		h := sha256.Sum256(fmt.Appendf(nil, "%s %s %d", job.Session, job.Run, n))
		h[6], h[8] = h[6]&0x0f|0x80, h[8]&0x3f|0x80 // a UUID of one's own making
		id := fmt.Sprintf("%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16])
		if dir := env[configDir]; dir == "" || !kept(dir, id) {
			return []string{"--session-id", id}
		}
	}
}

// gone reports whether a conversation is not there any more. The program writes a new one
// a moment after it has told of it, and may be killed until then.
func (x *Executor) gone(id string, env map[string]string) bool {
	dir := env[configDir]
	if home := cmp.Or(env["HOME"], x.opts.Getenv("HOME")); dir == "" && home != "" {
		dir = filepath.Join(home, ".claude")
	}
	return dir != "" && !kept(dir, id)
}

// kept reports whether a folder of the program's own files has a conversation. A folder
// that can't be read may have it.
func kept(dir, id string) bool {
	found, err := filepath.Glob(filepath.Join(escaped(dir), "projects", "*", id+".jsonl"))
	return err != nil || len(found) > 0
}

// escaped has no character that means something in a pattern.
func escaped(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// configDir is the variable for the folder of the program's own files.
const configDir = "CLAUDE_CONFIG_DIR"

// baseURL is the variable for the place where the login is good.
const baseURL = "ANTHROPIC_BASE_URL"

// Variables with which the program needs no login of the user's: keys, and those that say
// that its model is in a cloud.
var (
	keys   = []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"}
	clouds = []string{"CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY"}
	login  = append(slices.Clone(keys), baseURL)
)

func (x *Executor) environment(job executor.Job) map[string]string {
	env := map[string]string{
		"CLAUDE_CODE_DISABLE_CLAUDE_MDS": "1", "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
		// A text may mention a file as @name, which the program would read and send.
		"CLAUDE_CODE_DISABLE_ATTACHMENTS": "1", "CLAUDE_CODE_DISABLE_FILE_MENTIONS": "1",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1", "DISABLE_AUTOUPDATER": "1",
		"MCP_TOOL_TIMEOUT": toolTimeout, "MCP_TIMEOUT": "60000",
		"CLAUDE_CODE_TMPDIR": job.Folder, // what it leaves there goes with the run
	}
	maps.Copy(env, x.opts.Program.Environment(job))
	given := func(name string) bool { return env[name] != "" }
	cloud := slices.ContainsFunc(clouds, given)
	if !cloud {
		x.opts.Login(env, login...)
	}
	if env[configDir] == "" && (cloud || slices.ContainsFunc(keys, given)) {
		env[configDir] = filepath.Join(job.Dir, ".claude")
	}
	return env
}

// Read implements executor.Executor.
func (x *Executor) Read(job executor.Job) executor.Reader {
	return &reader{run: job.Run, schema: job.Agent.Result}
}
