package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestAgentCommands(t *testing.T) {
	var text string
	t.Run("run", func(t *testing.T) { text = runAgentCommands(t) })
	golden(t, "agent", text)
	for _, secret := range []string{"hunter2", "abcdefgh12345"} {
		if strings.Contains(text, secret) {
			t.Errorf("%s is shown", secret)
		}
	}
}

// runAgentCommands returns what each command prints, in a folder of its own.
func runAgentCommands(t *testing.T) string {
	t.Chdir(t.TempDir())
	write(t, "tine.yaml", "servers: {files: {builtin: files}}\nagents: {env: [GIT_TOKEN], executors: {mine: {type: procedural, command: ./mine}}}\n")
	write(t, "agents/reader.md", "---\nname: reader\ndescription: Reads code\ntools: Read, Grep\nmodel: sonnet\n---\n\nYou read.\nBe brief.\n")
	write(t, "agents/count/agent.json", `{"description":"Counts","executor":"mine","capabilities":["git"],"env":{"API_KEY":"hunter2-hunter2","N":"1"},"hooks":{"on_run_start":{"command":"./check","args":["${params.prompt}"]}},"limits":{"runs":3}}`)
	write(t, "agents/broken/agent.yaml", "descripton: Broken\nsystem_prompt: ${HOME}\n")
	write(t, "agents/lost/agent.yaml", "mcp_servers: {fils: {}}\nexecutor: mien\nsystem_prompt: ${params.promt}\n")
	write(t, "capabilities/git/capability.yaml", "system_prompt: Use git.\nmcp_servers:\n  git: {command: uvx, args: [mcp-server-git, \"${workspace}\"], env: {TOKEN: \"${env.GIT_TOKEN}\"}}\n  web: {url: https://example.org/mcp, headers: {Authorization: Bearer abcdefgh12345}}\n")
	write(t, "elsewhere/x.md", "---\ndescription: Elsewhere\n---\nHi ${params.prompt}\n")
	var b strings.Builder
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"agent", "agent list", "agent list --json", "agent ls", "agent check", "agent check --json", "agent check count", "agent check count --json", "agent check lost",
		"agent check elsewhere/x.md", "agent check agents/reader.md --json", "agent check agents/count", "agent check elsewhere", "agent check nowhere.md",
		"agent check countt", "agent check countt --json", "agent show reader", "agent show count", "agent show count --json", "agent show broken", "agent show", "agent show raeder --json",
		"agent new worker", "agent new worker", "agent new reader", "agent new broken", "agent new a/b", "agent new", "agent new other --json", "agent new third --dir more",
		"agent check worker", "agent check more/third/agent.yaml", "agent lst", "agent check a b", "agent list --config nowhere.yaml",
		"__complete agent show re", "__complete agent check c", "config check",
	} {
		stdout, stderr, code := run(t, "http://127.0.0.1:1", strings.Split(line, " ")...)
		fmt.Fprintf(&b, "$ tine %s\n%s", line, stdout)
		if stderr != "" {
			fmt.Fprintf(&b, "-- stderr\n%s", stderr)
		}
		fmt.Fprintf(&b, "-- exit %d\n\n", code)
	}
	return strings.ReplaceAll(b.String(), here, "DIR")
}
