//go:build unix

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/tine-mcp/tine/internal/model/modeltest"
	"github.com/tine-mcp/tine/internal/testkit"
)

// TestAgentsTutorial does what docs/agents-tutorial.md says, in the order of the page: it
// writes its files, types its commands and compares what they print. The model plays the
// conversation that the page shows.
func TestAgentsTutorial(t *testing.T) {
	t.Parallel()
	claude := need(t, claudeCode())[0]
	top := t.TempDir()
	u := &tutorial{dir: filepath.Join(top, "home"), pwd: filepath.Join(top, "pwd"), ids: map[string]string{}}
	model := modeltest.Play(t, u.play)
	bin := filepath.Join(top, "bin")
	for _, dir := range []string{bin, u.dir} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// The port of the page may be another gateway's.
	wrapper := fmt.Sprintf("#!/bin/sh\n[ \"$*\" = serve ] && set -- serve --listen 127.0.0.1:0\nexec %q \"$@\"\n", tineBinary)
	if err := errors.Join(os.Symlink(claude, filepath.Join(bin, "claude")), os.WriteFile(filepath.Join(bin, "tine"), []byte(wrapper), 0o700)); err != nil {
		t.Fatal(err)
	}
	u.env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + u.dir, "ANTHROPIC_API_KEY=sk-of-the-reader", "ANTHROPIC_BASE_URL=" + model.URL, "TUTORIAL_PWD=" + u.pwd}
	page, err := os.ReadFile(filepath.Join("..", "docs", "agents-tutorial.md"))
	if err != nil {
		t.Fatal(err)
	}
	fence := regexp.MustCompile("(?ms)^```[a-z]+\n# (\\S+)\n(.*?)^```$|(?:^    [^\n]*\n)+")
	ran := 0
	for _, m := range fence.FindAllStringSubmatch(string(page), -1) {
		if m[1] != "" {
			u.write(t, m[1], m[2])
			continue
		}
		for _, command := range regexp.MustCompile(`(?m)^    \$ `).Split(m[0], -1)[1:] {
			line, shows, _ := strings.Cut(command, "\n")
			u.run(t, line, regexp.MustCompile(`(?m)^    `).ReplaceAllString(shows, ""))
			ran++
		}
	}
	if ran != 10 {
		t.Errorf("the page has %d commands, and this test knows ten", ran)
	}
}

// A tutorial is what has become of the page so far.
type tutorial struct {
	dir, pwd string // where commands are typed, and a file with the folder that they end in
	env      []string
	ids      map[string]string // those of the page, as they are
	out      testkit.Log       // of all commands
}

func (u *tutorial) write(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(u.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// run types a command of the page, with the ids as they are, and compares what it prints.
func (u *tutorial) run(t *testing.T, line, shows string) {
	t.Helper()
	for page, id := range u.ids {
		part := strings.TrimPrefix(page, "run_")[:4]
		line = strings.ReplaceAll(line, " "+part+" ", " "+strings.TrimPrefix(id, "run_")+" ")
		if strings.HasSuffix(line, " "+part) {
			line = strings.TrimSuffix(line, part) + strings.TrimPrefix(id, "run_")
		}
	}
	var out testkit.Log
	cmd := exec.CommandContext(t.Context(), "sh", "-c", line+"\necho \"$PWD\" >\"$TUTORIAL_PWD\"")
	both := teeLog{&out, &u.out}
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = u.dir, u.env, both, both
	if line == "tine serve" {
		cmd.Args[2] = "exec " + line
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cmd.Process.Signal(syscall.SIGTERM)
			cmd.Wait()
			if t.Failed() {
				t.Logf("gateway's log:\n%s", tail(out.String(), 8<<10))
			}
		})
		testkit.Succeeds(t, "what tine serve prints", func() error { return u.compare(shows, out.String()) })
		return
	}
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out.String())
	}
	if err := u.compare(shows, out.String()); err != nil {
		t.Errorf("%s: %v\nin\n%s", line, err, out.String())
	}
	if now, err := os.ReadFile(u.pwd); err != nil {
		t.Error(err)
	} else {
		u.dir = strings.TrimSpace(string(now))
	}
}

// teeLog is a log that is part of another one.
type teeLog struct{ own, all *testkit.Log }

func (l teeLog) Write(p []byte) (int, error) {
	l.all.Write(p)
	return l.own.Write(p)
}

// varies are what is another each time: ids, durations, times, versions, addresses.
var varies = regexp.MustCompile(`(?:run|ses)_[0-9a-f]{12}|127\.0\.0\.1:[0-9]+|[0-9]{2}:[0-9]{2}:[0-9]{2}|\b[0-9.]+m?s\b|\b[0-9]+\.[0-9]+\b| {2,}`)

// compare holds what a command has printed against what the page shows.
func (u *tutorial) compare(shows, printed string) error {
	got := strings.Split(strings.TrimSuffix(printed, "\n"), "\n")
	for n, want := range strings.Split(strings.TrimSuffix(shows, "\n"), "\n") {
		if want == "..." {
			return nil
		}
		if shows == "" && printed == "" {
			return nil
		}
		if n >= len(got) {
			return fmt.Errorf("it does not print %q", want)
		}
		var pattern strings.Builder
		var ids []string
		last := 0
		for _, at := range varies.FindAllStringIndex(want, -1) {
			pattern.WriteString(regexp.QuoteMeta(want[last:at[0]]))
			switch what := want[at[0]:at[1]]; {
			case strings.HasPrefix(what, " "):
				pattern.WriteString(" +")
			case u.ids[what] != "":
				pattern.WriteString(u.ids[what])
			case strings.Contains(what, "_"):
				ids = append(ids, what)
				pattern.WriteString("(" + what[:4] + "[0-9a-f]{12})")
			default:
				pattern.WriteString(`[0-9a-z.:-]+`)
			}
			last = at[1]
		}
		pattern.WriteString(regexp.QuoteMeta(want[last:]))
		text := pattern.String()
		if want == "run is pending" {
			text += "(?:: it waits for .*)?" // a machine that is busy
		}
		m := regexp.MustCompile("^" + text + "$").FindStringSubmatch(got[n])
		if m == nil {
			return fmt.Errorf("line %d is %q, and the page shows %q", n+1, got[n], want)
		}
		for i, id := range ids {
			u.ids[id] = m[i+1]
		}
	}
	if n := strings.Count(shows, "\n"); n < len(got) && printed != "" {
		return fmt.Errorf("it prints %d lines more than the page shows", len(got)-n)
	}
	return nil
}

// play plays the reviewer and its workers. Each worker begins when the reader has seen that
// it is waited for, so that all happens in the order of the page.
func (u *tutorial) play(r modeltest.Request) modeltest.Reply {
	a := r.Asked()
	said := strings.Join(a.Said, "\n")
	has := func(words string) bool { return strings.Contains(said, words) }
	start := func(prompt string) modeltest.Reply {
		return calling(len(a.Results), "mcp__orchestrator__start_agent_session", map[string]any{"agent_name": "worker", "mode": "async_callback", "parameters": map[string]any{"prompt": prompt}})
	}
	if strings.Contains(a.System, "Read the file with the tools of files.") {
		bugs := has("Look for bugs in shop.py.")
		awaited, found := "called back by 1 agent\n", "sum hides Python's own sum: call it subtotal."
		if bugs {
			awaited, found = "called back by 2 agents\n", "The first price is left out: the loop begins at 1."
		}
		if len(a.Results) > 0 {
			return modeltest.Reply{Text: found}
		}
		if err := eventually(func() error {
			if !strings.Contains(u.out.String(), awaited) {
				return errors.New("it is not waited for")
			}
			return nil
		}); err != nil {
			return modeltest.Reply{Status: 400, Message: err.Error()}
		}
		return calling(0, "mcp__files__read_text_file", map[string]any{"path": "shop.py"})
	}
	switch both := has("The first price is left out") && has("call it subtotal"); {
	case has("Which of them would a test have found?"):
		return modeltest.Reply{Text: "The first: any list of prices has another total."}
	case both:
		return modeltest.Reply{Text: "1. The first price is left out: the loop begins at 1.\n2. sum hides Python's own sum: call it subtotal."}
	case has("The first price is left out"):
		return modeltest.Reply{Text: "The bugs are there. I wait for the names."}
	case len(a.Results) == 0:
		reply := start("Look for bugs in shop.py.")
		reply.Text = "I start two workers."
		return reply
	case len(a.Results) == 1:
		return start("Look for misleading names in shop.py.")
	}
	return modeltest.Reply{Text: "Two workers are at it."}
}
