package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/secret"
)

// clientChange is what a command does to the config of a client.
type clientChange struct {
	text    []byte // the new text of the file; nil if there is nothing to do
	taken   bool   // another server has the name
	entry   any    // the server that is added or removed
	done    string // what was done, in a line
	nothing string // that line if there was nothing to do
}

// clientAnswer is a change for programs.
type clientAnswer struct {
	File    string `json:"file"`
	Client  string `json:"client"`
	Name    string `json:"name"`
	Changed bool   `json:"changed"`
	Diff    string `json:"diff"`
	Entry   any    `json:"entry"`
}

// errNothing ends a change that another process has made meanwhile.
var errNothing = errors.New("there is nothing to do")

// changeClient shows a change to the config of a client, and makes it.
func (c *cli) changeClient(ctx context.Context, p *clientPlace, o installFlags, edit func(*config.JSONFile) (clientChange, error)) error {
	info, err := p.resolve()
	if err != nil {
		return err
	}
	var old []byte
	if info != nil {
		if old, err = readFile(p.file, maxConfig); err != nil {
			return fmt.Errorf("read the config of %s: %w", p.client.title, err)
		}
	}
	var ch clientChange
	look := func(old []byte) error {
		f, err := config.ParseJSONFile(p.file, old, p.client.comments)
		if err == nil {
			ch, err = edit(f)
		}
		if err != nil {
			return &usageError{fmt.Errorf("%w; nothing was changed", err)}
		}
		return nil
	}
	if err := look(old); err != nil {
		return err
	}
	answer := clientAnswer{File: p.file, Client: p.client.name, Name: p.name, Entry: ch.entry}
	if ch.text == nil {
		return c.answer(answer, ch.nothing)
	}
	// Nothing goes from the file unless it is replaced.
	answer.Diff = p.diff(info == nil, old, ch.text, o.print || ch.taken && !o.replace)
	switch {
	case o.print:
		c.showDiff(answer.Diff)
		if c.flags.json {
			return c.printJSON(answer)
		}
		if ch.taken {
			c.say("%s has another server %q, which only --replace replaces", p.file, p.name)
		}
		return nil
	case ch.taken && !o.replace:
		c.showDiff(answer.Diff)
		return usagef("%s has another server %q; replace it with --replace, or choose another name with --name", p.file, p.name)
	case info != nil && info.Mode()&0o200 == 0:
		return fmt.Errorf("%s is read-only; make it writable, or make the change that --print shows by hand", p.file)
	}
	folder, release, err := c.openFolder(ctx, p)
	if err != nil {
		return err
	}
	defer release()
	mode := fs.FileMode(0o600)
	if p.shared() {
		mode = 0o644
	}
	made, err := c.replaceFile(ctx, p.file, []byte{}, mode, func(old []byte) ([]byte, error) {
		if err := look(old); err != nil {
			return nil, err
		}
		switch {
		case ch.text == nil:
			return nil, errNothing
		case ch.taken && !o.replace:
			return nil, usagef("%s was changed meanwhile, and has another server %q; look at it with --print", p.file, p.name)
		}
		answer.Diff, answer.Entry = p.diff(info == nil && len(old) == 0, old, ch.text, false), ch.entry
		c.showDiff(answer.Diff)
		return ch.text, nil
	})
	switch {
	case errors.Is(err, errNothing):
		answer.Diff = ""
		return c.answer(answer, ch.nothing)
	case err != nil:
		return err
	}
	answer.Changed = true
	if made {
		ch.done += ", a new file"
	}
	return c.answer(answer, ch.done, c.clientAdvice(p, ch, folder)...)
}

// clientAdvice is what to do after a change. A folder that was missing may mean that
// the client is not there.
func (c *cli) clientAdvice(p *clientPlace, ch clientChange, folder bool) []string {
	e, added := ch.entry.(clientEntry)
	if !added {
		return []string{fmt.Sprintf("sessions of %s that run keep it until they end", p.client.title)}
	}
	advice := []string{p.client.check(p)}
	if !folder && !p.shared() {
		advice = append(advice, fmt.Sprintf("the folder %s was missing and was made; if %s keeps its config elsewhere, name the file with --file", filepath.Dir(p.file), p.client.title))
	}
	if filepath.IsAbs(e.Command) && p.shared() {
		advice = append(advice, fmt.Sprintf("the file names %s, which others who use it may not have; with tine on PATH it would name tine", e.Command))
	}
	if strings.Contains(filepath.ToSlash(e.Command), "/go-build") {
		advice = append(advice, fmt.Sprintf("%s lies in a folder of go run, and will be gone; install tine and run this again with --replace", e.Command))
	}
	return advice
}

// resolve follows a link to the file, so that the link stays, and looks at the file;
// nil if there is none yet.
func (p *clientPlace) resolve() (fs.FileInfo, error) {
	info, err := os.Lstat(p.file)
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		to, err := filepath.EvalSymlinks(p.file)
		if err != nil {
			return nil, fmt.Errorf("%s is a link that leads nowhere: %w; mend it, or make its target", p.file, err)
		}
		p.file = to
		info, err = os.Stat(to)
		if err != nil {
			return nil, err
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a file; name the config file of %s with --file", p.file, p.client.title)
	}
	return info, nil
}

// openFolder makes the folder of the file, if it is missing, and keeps the client from
// writing the file at the same time.
func (c *cli) openFolder(ctx context.Context, p *clientPlace) (was bool, release func(), err error) {
	dir := filepath.Dir(p.file)
	_, err = os.Stat(dir)
	was = err == nil
	mode := fs.FileMode(0o700)
	if p.shared() {
		mode = 0o755
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return false, nil, fmt.Errorf("make the folder of the config of %s: %w", p.client.title, err)
	}
	if p.client.name != "claude-code" || p.shared() {
		return was, func() {}, nil
	}
	release, err = lockClaude(ctx, p.lock)
	return was, release, err
}

// Claude Code, which writes its file for the user often, holds a folder beside it
// while it does. One that was not touched for so long is left over.
const (
	claudeStale = 10 * time.Second
	claudeWait  = 12 * time.Second // longer, so that one that is left over is found
)

func lockClaude(ctx context.Context, lock string) (release func(), err error) {
	giveUp := time.Now().Add(claudeWait)
	for {
		err := os.Mkdir(lock, 0o777)
		switch {
		case err == nil:
			return func() { os.Remove(lock) }, nil
		case !errors.Is(err, fs.ErrExist):
			return nil, fmt.Errorf("keep Claude Code from writing its config meanwhile: %w", err)
		case time.Now().After(giveUp):
			return nil, fmt.Errorf("the config is being written by Claude Code; try again, or remove %s if no Claude Code runs", lock)
		}
		if info, err := os.Stat(lock); err == nil && time.Since(info.ModTime()) > claudeStale && os.Remove(lock) == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// diff is the change of the file. Secrets that stay in it, and all where the change is not
// made, are masked; those that go are needed to undo the change.
func (p *clientPlace) diff(missing bool, before, after []byte, only bool) string {
	from := p.file
	if missing {
		from = "/dev/null" // as patch has it, on every system
	}
	var b strings.Builder
	for line := range strings.Lines(string(diff.Diff(from, before, p.file, after))) {
		at := 0
		for _, s := range secret.Joined(secret.Find(line)) {
			value := []byte(line[s.From:s.To])
			if !bytes.Contains(before, value) || !only && !bytes.Contains(after, value) {
				continue
			}
			b.WriteString(line[at:s.From] + secret.Mask)
			at = s.To
		}
		b.WriteString(line[at:])
	}
	return b.String()
}

// showDiff prints a diff for people.
func (c *cli) showDiff(text string) {
	if c.flags.json {
		return
	}
	for line := range strings.Lines(text) {
		if !c.outTerminal {
			fmt.Fprint(c.stdout, line)
			continue
		}
		color := ""
		switch {
		case strings.HasPrefix(line, "+++"), strings.HasPrefix(line, "---"), strings.HasPrefix(line, "diff "):
			color = bold
		case strings.HasPrefix(line, "+"):
			color = green
		case strings.HasPrefix(line, "-"):
			color = red
		}
		fmt.Fprintln(c.stdout, c.paint(color, visible(strings.TrimRight(line, "\r\n"), true)))
	}
}

// program is how a client starts this program: by its name, if that finds it and the
// client has the PATH of a shell, else by its path. A path on PATH comes before what a
// link there leads to, which an upgrade may remove.
func (c *cli) program(byName bool) (string, error) {
	self, err := c.executable()
	if err != nil {
		return "", fmt.Errorf("find the path of this program: %w", err)
	}
	name := "tine"
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	for _, dir := range filepath.SplitList(c.getenv("PATH")) {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() || runtime.GOOS != "windows" && info.Mode()&0o111 == 0 {
			continue
		}
		if !filepath.IsAbs(dir) || !sameFile(path, self) {
			break
		}
		if byName {
			return "tine", nil
		}
		return path, nil
	}
	return filepath.Abs(self)
}
