package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// arguments are the command line. Nothing of the conversation is in it, and none of
// the program's tools, servers and commands are switched on.
func (p *program) arguments(a *attempt, system string) []string {
	args := []string{
		"-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages", "--no-session-persistence",
		"--tools", "", "--strict-mcp-config", "--disable-slash-commands",
		"--max-turns", strconv.Itoa(maxTurns), "--system-prompt-file", system,
	}
	if p.model != "" {
		args = append(args, "--model="+p.model) // never an argument of its own
	}
	if a.money > 0 {
		args = append(args, "--max-budget-usd", strconv.FormatFloat(max(a.money, 1e-6), 'f', 6, 64))
	}
	if len(a.Tools) > 0 {
		args = append(args, "--json-schema", form(a.Tools))
	}
	return args
}

// passed are the variables that the program gets if they are set: where it and its
// login are, how it reaches the network, and what a process needs at all.
var passed = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
	"XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "CLAUDE_CONFIG_DIR", "CLAUDE_CODE_OAUTH_TOKEN",
	"HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy",
	"NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR",
	"SYSTEMROOT", "SYSTEMDRIVE", "COMSPEC", "PATHEXT", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "TEMP", "TMP",
}

// leastProgramOutput is what the program needs for thinking and a word or two.
const leastProgramOutput = 2048

// environment is what the program sees. A key is in it only if the settings name one.
func (p *program) environment(a *attempt) []string {
	env := []string{
		// The user's hooks, plugins, memory and servers are no part of a model. Versions
		// from before 2026 do not know this.
		"CLAUDE_CODE_SAFE_MODE=1",
		// A text may mention a file as @name, which the program would read and send.
		"CLAUDE_CODE_DISABLE_ATTACHMENTS=1", "CLAUDE_CODE_DISABLE_FILE_MENTIONS=1",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1",
		"CLAUDE_CODE_MAX_RETRIES=0", // the call itself is repeated
	}
	for _, name := range passed {
		if value := p.environ(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	if a.maxTokens > 0 {
		env = append(env, "CLAUDE_CODE_MAX_OUTPUT_TOKENS="+strconv.Itoa(max(a.maxTokens, leastProgramOutput)))
	}
	if a.key != "" {
		env = append(env, "ANTHROPIC_API_KEY="+a.key)
	}
	if p.base != nil {
		env = append(env, "ANTHROPIC_BASE_URL="+strings.TrimSuffix(p.base.String(), "/"))
	}
	return env
}

// systemText is the system prompt, with the tools if there are some.
func systemText(r *Request) string {
	if len(r.Tools) == 0 {
		return r.System
	}
	var b strings.Builder
	if r.System != "" {
		b.WriteString(r.System + "\n\n")
	}
	b.WriteString("You can call the tools below. They run elsewhere, and the next message of the user brings their results. " +
		"Give your answer as the structured output: text is what you say to the user, and calls are the tool calls that you make now, " +
		"each with the name of a tool and arguments that fit its schema. When you need no tool, leave calls empty and put the whole answer into text.\n")
	for _, t := range r.Tools {
		schema := t.Schema
		if len(schema) == 0 {
			schema = json.RawMessage(`{"type":"object"}`)
		}
		fmt.Fprintf(&b, "\nTool %s: %s\nSchema: %s\n", t.Name, t.Description, compact(schema))
	}
	return b.String()
}

// promptText is what the program reads: the question as it is, or a conversation as
// JSON, which no text in it can be mistaken for.
func promptText(r *Request) string {
	if len(r.Messages) == 1 {
		return r.Messages[0].Text
	}
	turns := make([]Message, len(r.Messages))
	for i, m := range r.Messages {
		m.Raw = nil
		turns[i] = m
	}
	var b bytes.Buffer
	b.WriteString("This is a conversation so far, as a JSON array of messages. Write the next message of the assistant.\n")
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.Encode(turns) // its arguments are checked to be JSON
	return b.String()
}

// form is the JSON Schema of an answer that may call tools.
func form(tools []Tool) string {
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = t.Name
	}
	type object = map[string]any
	schema, _ := json.Marshal(object{ // it has only maps and strings
		"type": "object", "required": []string{"text", "calls"},
		"properties": object{
			"text": object{"type": "string"},
			"calls": object{"type": "array", "maxItems": maxCalls, "items": object{
				"type": "object", "required": []string{"name", "arguments"},
				"properties": object{"name": object{"type": "string", "enum": names}, "arguments": object{"type": "object"}},
			}},
		},
	})
	return string(schema)
}

// filledForm reads an answer. The calls get ids, which the program does not have.
func filledForm(raw json.RawMessage) (Message, error) {
	var f struct {
		Text  string
		Calls []struct {
			Name      string
			Arguments json.RawMessage
		}
	}
	if len(raw) == 0 || json.Unmarshal(raw, &f) != nil {
		return Message{}, errCut
	}
	m := Message{Role: RoleAssistant, Text: f.Text}
	for i, c := range f.Calls {
		m.Calls = append(m.Calls, Call{ID: fmt.Sprintf("call_%d", i+1), Name: c.Name, Arguments: object(string(c.Arguments))})
	}
	return m, nil
}
