package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// maxSecret bounds what is read as a secret; no header may be longer.
const maxSecret = 64 << 10

// confirm asks a question on the terminal. Only y or yes means yes.
func (c *cli) confirm(ctx context.Context, question string) (bool, error) {
	fmt.Fprint(c.stderr, visible(question, c.errTerminal)+" [y/N] ")
	line, err := untilDone(ctx, func() (string, error) { return bufio.NewReader(c.stdin).ReadString('\n') })
	if err != nil && !errors.Is(err, io.EOF) {
		fmt.Fprintln(c.stderr)
		return false, err
	}
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes", nil
}

// secret reads a secret: from a prompt without echo on a terminal, else all of
// standard input. It is never an argument, which process lists and the history
// of the shell would show. It is one line, unless it may have more.
func (c *cli) secret(ctx context.Context, what string, lines bool) (string, error) {
	var (
		raw []byte
		err error
	)
	if c.inTerminal {
		fmt.Fprint(c.stderr, visible(what, c.errTerminal)+" (not shown): ")
		raw, err = c.readHidden(ctx)
		fmt.Fprintln(c.stderr)
	} else {
		raw, err = untilDone(ctx, func() ([]byte, error) { return readAll(c.stdin, "standard input", maxSecret) })
	}
	if err != nil {
		return "", fmt.Errorf("read the %s: %w", what, err)
	}
	value := strings.TrimRight(string(raw), "\r\n")
	switch {
	case strings.TrimSpace(value) == "":
		return "", usagef("the %s is empty; type it at the prompt or send it to standard input", what)
	case lines:
	case strings.ContainsFunc(value, func(r rune) bool { return r < 0x20 && r != '\t' || r == 0x7f }):
		return "", usagef("the %s has a line break or another control character in it; give it as one line", what)
	}
	return value, nil
}

// untilDone waits for a read of standard input, or for ctx: a read from a terminal
// can't be cancelled, and ends with the program.
func untilDone[T any](ctx context.Context, read func() (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	got := make(chan answer, 1)
	go func() {
		v, err := read()
		got <- answer{v, err}
	}()
	select {
	case a := <-got:
		return a.v, a.err
	case <-ctx.Done():
		var zero T
		return zero, ctx.Err()
	}
}

// readHiddenFrom reads a line from a terminal that does not show it.
func readHiddenFrom(f *os.File) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		fd := int(f.Fd())
		before, err := term.GetState(fd)
		if err != nil {
			return nil, err
		}
		raw, err := untilDone(ctx, func() ([]byte, error) { return term.ReadPassword(fd) })
		if ctx.Err() != nil {
			// The read still holds the terminal, whose echo must be on again after
			// this program.
			err = errors.Join(ctx.Err(), term.Restore(fd, before))
		}
		return raw, err
	}
}
