package main

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

func TestGolden(t *testing.T) {
	plain, named := world().start(t), world().withNames().start(t)
	tests := []struct {
		name  string
		lines []string // command lines, split at spaces
	}{
		{"servers", []string{"servers", "servers --json", "servers show files", "servers show git", "servers show time", "servers show web", "servers show web --json"}},
		{"patch", []string{"servers enable files", "servers disable files", "servers enable web", "servers reset web", "servers reset files", "servers reset nothing", "servers disable git --json", "servers enable git"}},
		{"set", []string{
			"servers set files timeout=10s policy.retry.attempts=5", "servers set files polcy.retry.attempts=5", "servers set nowhere timeout=1s",
			"servers unset files timeout", "servers unset files timeout policy.retry.attempts", "servers header web Authorization --remove", "servers secret web --remove",
			"servers set", "servers set files", "servers set files timeout", "servers set files =5", "servers set files timeout=1s timeout=2s",
			"servers set files policy.retry.attempts=many", "servers set files policy.retry:={", "servers set files policy.retry.attempts=1 policy:={}",
			"servers set files headers.Authorization=x", "servers set files auth.client_secret=x", "servers set files auth.private_key=x", "servers secret files --key token", "servers set files headers:={}", "servers unset files",
			"servers header web", "servers header web Author:ization", "servers header web X-Key", "servers secret web",
		}},
		{"calls", []string{
			"calls", "calls --limit 3", "calls --server web", "calls --failed --principal alice", "calls --session 0a --json", "calls --since 90m", "calls --since 2026-11-15",
			"calls --server time", "calls --server time --json", "calls call_0005", "calls call_0005 --json", "calls call_0004", "calls call_0003", "calls files",
			"calls --limit 0", "calls --since yesterday", "calls --since -1h", "calls call_0005 --failed --limit 3", "calls a b", "calls --follow --limit 2000",
		}},
		{"replay", []string{"replay call_0005 --yes", "replay call_0005 --yes --json", "replay call_0004 -y", "replay call_0003 --yes", "replay files --yes", "replay call_0005", "replay"}},
		{"token", []string{
			"token", "token list", "token list --json", "token new kim", "token new kim --role viewer --expires 90d", "token new kim --json",
			"token rotate ci", "token rotate ci --json", "token rotate cy", "token revoke ci", "token revoke ci --json", "token revoke alice", "token revoke bord",
			"token new", "token new ci", "token new kim --role viewr", "token new kim --expires soon", "token new kim --expires -1h", "token new kim --expires 2020-01-01", "token lst", "token list x",
		}},
		{"session", []string{
			"session", "session list", "session list --json --limit 1", "session list --label run=7 --label try=b", "session list --closed --owner alice", "session list --limit 3", "session list --after 0c",
			"session list --label run=8", "session list --label run=8 --json", "session show 0a", "session show 0a --json", "session show ses_0b1", "session show 0d",
			"session snapshots", "session snapshots --json", "session snapshots list --auto --limit 2", "session snapshots --session 0a", "session snapshots --session 0c",
			"session tree 0b11", "session tree", "session tree --limit 1", "session tree 0b --json",
		}},
		{"session-make", []string{
			"session open", "session open --label run=7 --label a=b=c --ttl 2h --idle 0", "session open --json", "session open --count 1 --json", "session open --from base",
			"session open --from snp_0000000000b --server memory --autosnapshot every=10 --autosnapshot before=files__write_*,memory__* --autosnapshot keep=3 --wait 1d",
			"session fork 0a", "session fork ses_0a0000000001 --count 3 --label try=a", "session fork 0a --json",
			"session token 0a", "session token 0a --json", "session token 0b11", "session token 0a 0c ses_eeeeeeeeeeee", "session token 0a 0c --json", "session token ses_eeeeeeeeeeee --json",
			"session token 0a --run review --server files --ttl 1h", "session token 0a 0c --ttl 0s", "session token 0a --allow fork --json", "session token 0a 0c --run r --json", "session token 0b11 --run r",
			"session token 0a --list", "session token 0a --list --json", "session token 0c --list", "session token 0a 0c --list", "session token 0a --list --run r",
			"session token 0a --revoke tok_000000000001", "session token 0a --revoke tok_x", "session token 0a --revoke-run review", "session token 0a --revoke-run other --json",
			"session snapshot 0a", "session snapshot 0a --name calm --label a=b", "session snapshot 0a --json",
			"session rewind 0a --yes", "session rewind 0a base -y", "session rewind 0a 0000000000a --yes --json",
			"session close 0a", "session close 0c ses_0b1 0c0 ses_0a0000000001", "session close 0a --json", "session close --all --label run=7", "session close --all --yes --json", "session close --all --label run=8",
			"session snapshots delete base", "session snapshots delete base snp_00000000c --json",
			"session export 0a", "session export 0b11", "session export base -o -",
			"session export --label run=7", "session export --label run=7 --closed --owner alice", "session export --label run=8 -o -",
			"session annotate 0a --reward 0.5 --call call_0005", "session annotate 0b11 --text done --json", `session annotate 0a --data {"a":1}`,
			"tools --session 0a time", "call --session 0a files__draw",
		}},
		{"session-named", []string{
			"session list", "session show work", "session show default", "session show 0a", "session show 0f2", "session tree work", "session fork work", "session export work", "session close work", "session close work --yes",
			"session close 0f2", "call --session work files__draw", "__complete session show w", "session show wrk",
		}},
		{"session-wrong", []string{
			"session opn", "session open x", "session open --count 0", "session open --label run", "session open --label =x", "session open --label a=1 --label a=2",
			"session open --ttl soon", "session open --idle -1h", "session open --autosnapshot every=0", "session open --autosnapshot often", "session open --autosnapshot keep=3", "session open --autosnapshot before=",
			"session open --from bse", "session open --from snp_0000", "session open --from snp_0000000000ff", "session open --label run=full", "session open --label run=full --count 1 --json", "session open --server git",
			"session list --limit 0", "session list --label run", "session show", "session show 0", "session show zz", "session show ses_", "session show ff", "session show ses_ffffffffffff", "session show 0a 0b",
			"session fork", "session fork 0a --count 0", "session fork ses_0b1100000003", "session fork ses_ffffffffffff", "session fork 0a --wait 1ms", "session fork 0a --wait long",
			"session snapshot 0a --name base", "session snapshot", "session rewind 0a", "session rewind", "session rewind 0c --yes", "session rewind 0a bse --yes", "session rewind 0b11 base --yes", "session rewind a b c",
			"session close", "session close 0a --all", "session close --label run=7", "session close --all", "session close ses_ffffffffffff", "session close ses_ffffffffffff 0a ses_eeeeeeeeeeee", "session close --all --label x",
			"session snapshots list x", "session snapshots lst", "session snapshots --limit 0", "session snapshots delete", "session snapshots delete bse", "session snapshots delete bse base",
			"session tree ff", "session tree --limit 0", "session export ff", "session export bse", "session export snp_f", "session export ses_ff", "session export", "session export 0a --label run=7", "session export 0a --closed", "session export --closed", "session export --label run", "session export --label run=7 --owner broken", "session annotate", "session annotate 0a", "session annotate 0a --data {", "session annotate 0a --reward x", "session annotate 0a --file /nonexistent", "session annotate 0a --reward 1 --call nope", "session annotate ff --reward 1",
			"session import", "session import /nonexistent/file", "session import .", "session import -",
			"tools --session ff", "tools --session ses_0b1100000003 fils", "call --session ff files__draw", "call --session nope files__draw", "calls --session zz",
		}},
		{"tools", []string{"tools", "tools files", "tools git", "tools files --schema", "tools time --json",
			"tools --grep READ", "tools --grep draws?|zone --json", "tools time --grep file", "tools --grep (", "tools --grep ( --json"}},
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
		{"wrong-json", []string{
			"bogus --json", "servers --bogus --json", "servers --bogus -- --json", "--json servers show", "tools fils --json", "call --json", "call files__raed_file --json", "call git__log --json",
			"session close ses_ffffffffffff --json", "session close ses_ffffffffffff 0a ses_eeeeeeeeeeee --json", "session open --label run=full --json", "config show /nonexistent/file --json",
			"stdio --errors none --json",
		}},
		{"alias", []string{"servers ls", "session ls --limit 1", "session rm 0a", "session snapshots ls --limit 1", "session snapshots rm base", "token ls", "token rm ci"}},
		{"completion", []string{"__complete servers show ", "__complete servers enable t", "__complete call files__", "__complete call files__read_file ", "__complete call files__read_file path=x l", "__complete tools fi",
			"__complete calls ", "__complete calls call_0005 ", "__complete calls --server w", "__complete replay call_", "__complete token revoke ", "__complete token new kim --role ",
			"__complete login w", "__complete servers set ", "__complete servers set files policy.b", "__complete servers set files timeout=", "__complete servers unset files ", "__complete servers unset files timeout ",
			"__complete servers header f", "__complete servers secret f",
			"__complete session show ", "__complete session show 0b", "__complete session fork ses_0a", "__complete session close ses_0a0000000001 ", "__complete session show 0a ", "__complete session open --from ", "__complete session open --from snp_",
			"__complete session rewind 0a ", "__complete session rewind 0a b", "__complete session export ", "__complete session snapshots delete o", "__complete call --session 0", "__complete call --session 0a files__", "__complete session open --autosnapshot "}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			url := plain
			if tt.name == "session-named" {
				url = named
			}
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
		{"servers", 100, true},
		{"servers show git", 60, true},
		{"calls", 100, false},
		{"calls", 90, true},
		{"calls call_0001", 60, true},
		{"tools", 60, true},
		{"session list --closed", 100, false},
		{"session list --closed", 60, true},
		{"session show 0a", 100, true},
		{"session tree 0b", 80, false},
		{"session tree", 40, true},
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
			if n := len([]rune(strings.TrimRight(line, "\n"))); tt.noColor && n > tt.width && tt.line != "calls call_0001" && !strings.Contains(tt.line, " show ") {
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
		if !cmd.Hidden && (cmd.Example == "" || cmd.Short == "") {
			t.Errorf("%s has no example or no short help", cmd.CommandPath())
		}
		if cmd.RunE == nil {
			t.Errorf("%s does not return its error", cmd.CommandPath())
		}
		cmd.SetOut(io.Discard)
	}
}
