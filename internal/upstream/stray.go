package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/wire"
)

// A program may be no MCP server at all: it prints something, or echoes its input.
// Servers print banners too, so printed text counts only if no message comes.

// strayOutput is what a server wrote to its output before its first message. Only the
// goroutine that reads uses it, until that has ended.
type strayOutput struct {
	first string // as an error has it
	bytes int
}

// maxStray is how much stray output is read.
const maxStray = 1 << 20

// errNoMessage ends a connection with more stray output than that.
var errNoMessage = errors.New("it writes much to standard output, but no MCP message")

// strays notes a line that is no message; false if there is too much stray output.
func (t *streamTransport) strays(line []byte) bool {
	t.c.log.Debug("server wrote something that is no message", "server", t.c.server, "bytes", len(line), "line", string(line[:min(len(line), 200)]))
	if t.spoke.Load() {
		return true
	}
	if t.stray.first == "" {
		if cut := bytes.LastIndexByte(line, ' '); len(line) >= driver.MaxStray && cut > 0 {
			line = line[:cut] // half a secret would not be found
		}
		t.stray.first = fmt.Sprintf("; it wrote `%s` to standard output, which is not MCP", t.c.mask.excerpt(line))
	}
	if t.stray.bytes += len(line) + 1; t.stray.bytes <= maxStray {
		return true
	}
	t.fail(errNoMessage)
	return false
}

// echoes reports whether a request of the server is one of ours.
func (t *streamTransport) echoes(msg wire.Message) bool {
	id, ok := wire.Unquote(msg.ID)
	if !ok {
		return false
	}
	k := t.find(id)
	return k != nil && k.req.Method == msg.Method
}

// errEcho is why a program that echoes its input can't be used.
func errEcho(server string) error {
	return failure(api.KindInfrastructure, server, false, "echoes its input; it is not an MCP server")
}

// strayError is an error of a connection with stray output, which ends its text.
type strayError struct {
	error
	stray string
}

func (e *strayError) Unwrap() error { return e.error }

// withStray adds the stray output to an error, once.
func withStray(err error, stray string) error {
	if stray == "" {
		return err
	}
	if strings.HasSuffix(err.Error(), stray) {
		return &strayError{err, stray}
	}
	var ours *api.Error
	if errors.As(err, &ours) {
		e := *ours
		e.Message += stray
		return &strayError{&e, stray}
	}
	return &strayError{&reworded{err.Error() + stray, err}, stray}
}

// strayOf is what withStray added.
func strayOf(err error) string {
	var e *strayError
	if errors.As(err, &e) {
		return e.stray
	}
	return ""
}

// reworded is an error with another text.
type reworded struct {
	text string
	err  error
}

func (e *reworded) Error() string { return e.text }

func (e *reworded) Unwrap() error { return e.err }
