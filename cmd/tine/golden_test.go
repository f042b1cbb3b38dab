package main

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

func TestGolden(t *testing.T) {
	url := world().start(t)
	tests := []struct {
		name  string
		lines []string // command lines, split at spaces
	}{
		{"servers", []string{"servers", "servers --json", "servers show files", "servers show web", "servers show web --json"}},
		{"patch", []string{"servers enable files", "servers disable files", "servers enable web", "servers reset web", "servers disable git --json", "servers enable git"}},
		{"tools", []string{"tools", "tools files", "tools git", "tools files --schema", "tools time --json"}},
		{"call", []string{
			"call files__read_file path=/x limit=12345678901234567890",
			"call files__read_file path=/x limit=12345678901234567890 --json",
			"call files__read_file path=/x limt=5",
			`call files__read_file limit:={"a":[1.50]} path:=null`,
			"call files__draw",
			"call files__draw --json",
			"call files__strict mode=fast",
			"call time__get_current_time timezone=Mars",
			"call time__get_current_time timezone=Mars --json",
		}},
		{"call-wrong", []string{
			"call", "call files__read_file path", "call files__read_file =x", "call files__read_file limit=ten",
			"call files__read_file path=1 path=2", "call files__read_file path:={", "call files__strict mode=medium",
			"call files__strict mod=fast", "call files__raed_file path=/x", "call files__raed_file", "call nothing a=b",
			"call files__read_file --args [1]", "call files__read_file path=@/nonexistent/file", "call files__read_file --timeout -5s",
		}},
		{"call-failed", []string{"call git__log n=1", "call git__log", "call files__asks", "call files__odd", "call files__odd --json"}},
		{"logs", []string{"logs files", "logs files --bytes 5", "logs git", "logs time", "logs files --json", "logs fils", "logs files --bytes 0", "logs files --json --follow"}},
		{"wrong", []string{
			"bogus", "serv", "servers shw", "servers --bogus", "servers show", "servers show a b", "servers show fils", "servers disable nowhere",
			"tools a b", "tools fils", "config bogus", "completion", "completion tcsh", "version x", "--json=maybe servers",
			"--token a --token-file b servers",
		}},
		{"completion", []string{"__complete servers show ", "__complete servers enable t", "__complete call files__", "__complete call files__read_file ", "__complete call files__read_file path=x l", "__complete tools fi"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var b strings.Builder
			for _, line := range tt.lines {
				args := strings.Split(line, " ")
				stdout, stderr, code := run(t, url, args...)
				fmt.Fprintf(&b, "$ tine %s\n%s", line, stdout)
				if stderr != "" {
					fmt.Fprintf(&b, "-- stderr\n%s", stderr)
				}
				fmt.Fprintf(&b, "-- exit %d\n\n", code)
			}
			golden(t, tt.name, strings.ReplaceAll(b.String(), url, "URL"))
		})
	}
}

// On a terminal lines are bounded, states are coloured and nothing that a server
// wrote is obeyed.
func TestGoldenTerminal(t *testing.T) {
	url := world().start(t)
	var b strings.Builder
	for _, tt := range []struct {
		line    string
		width   int
		noColor bool
	}{
		{"servers", 100, false},
		{"servers", 60, true},
		{"tools", 60, true},
		{"logs git", 80, false},
		{"logs git", 80, true},
		{"call time__get_current_time timezone=Mars", 80, false},
	} {
		tc := newTestCLI(t, strings.Split(tt.line, " ")...)
		tc.env["TINE_URL"] = url
		if tt.noColor {
			tc.env["NO_COLOR"] = "1"
		}
		tc.outTerminal, tc.errTerminal, tc.outColor, tc.width = true, true, true, tt.width
		tc.cli.run(t.Context())
		for line := range strings.Lines(tc.out.String()) {
			if n := len([]rune(strings.TrimRight(line, "\n"))); tt.noColor && n > tt.width {
				t.Errorf("%s: a line of %d characters on a terminal of %d: %s", tt.line, n, tt.width, line)
			}
		}
		fmt.Fprintf(&b, "$ tine %s # %d wide\n%s%s\n", tt.line, tt.width, tc.out.String(), tc.err.String())
	}
	golden(t, "terminal", strings.ReplaceAll(b.String(), "\x1b", "<ESC>"))
}

func TestOutputThatCannotBeWritten(t *testing.T) {
	tc := newTestCLI(t, "servers")
	tc.env["TINE_URL"] = world().start(t)
	tc.stdout = brokenWriter{}
	if code := tc.cli.run(t.Context()); code != exitFailed || !strings.Contains(tc.err.String(), "write the output") {
		t.Errorf("exit %d, stderr %q", code, tc.err.String())
	}
}

func TestEveryCommandHasExamples(t *testing.T) {
	tc := newTestCLI(t)
	root := tc.root()
	queue := root.Commands()
	for len(queue) > 0 {
		cmd := queue[0]
		queue = append(queue[1:], cmd.Commands()...)
		if cmd.Example == "" || cmd.Short == "" {
			t.Errorf("%s has no example or no short help", cmd.CommandPath())
		}
		if cmd.RunE == nil {
			t.Errorf("%s does not return its error", cmd.CommandPath())
		}
		cmd.SetOut(io.Discard)
	}
}
