package modeltest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A Program is a scripted program claude, for systems with a shell.
type Program struct {
	Path string

	t   testing.TB
	dir string
}

// A Run is what the program does when it is started: it reads its input, prints the
// lines to standard output and words to standard error, and ends with the code. If it
// hangs, it starts a process and waits for it instead.
type Run struct {
	Lines []string
	Words string
	Code  int
	Hang  bool
}

// NewProgram writes a program that is started once for each run.
func NewProgram(t testing.TB, runs ...Run) *Program {
	t.Helper()
	p := &Program{t: t, dir: t.TempDir()}
	p.Path = filepath.Join(p.dir, "claude")
	for i, r := range runs {
		end := fmt.Sprintf("exit %d", r.Code)
		if r.Hang {
			end = "sleep 3600 & echo $! > child.part && mv child.part child; wait"
		}
		text := "cat output\ncat words >&2\n" + end + "\n"
		dir := p.run(i)
		p.write(filepath.Join(dir, "output"), strings.Join(append(r.Lines, ""), "\n"), 0o600)
		p.write(filepath.Join(dir, "words"), r.Words, 0o600)
		p.write(filepath.Join(dir, "act"), text, 0o600)
	}
	p.write(p.Path, fmt.Sprintf(`#!/bin/sh
cd %q
n=0
while ! mkdir "taken$n" 2>/dev/null; do n=$((n+1)); done
[ -d "run$n" ] || { echo "claude was started too often" >&2; exit 3; }
cd "run$n"
env > env
for a in "$@"; do
	printf '%%s\n' "$a" >> args
	[ "$before" = --system-prompt-file ] && cat "$a" > system
	before=$a
done
cat > input
. ./act
`, p.dir), 0o700)
	return p
}

func (p *Program) run(i int) string { return filepath.Join(p.dir, fmt.Sprintf("run%d", i)) }

func (p *Program) write(name, text string, mode os.FileMode) {
	p.t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		p.t.Fatal(err)
	}
}

// Has reports whether a run has left a file: args, env, system or input, and child
// with the number of the process that a hanging one started.
func (p *Program) Has(run int, name string) bool {
	_, err := os.Stat(filepath.Join(p.run(run), name))
	return err == nil
}

// Read returns such a file.
func (p *Program) Read(run int, name string) string {
	p.t.Helper()
	data, err := os.ReadFile(filepath.Join(p.run(run), name))
	if err != nil {
		p.t.Fatal(err)
	}
	return string(data)
}
