package driver

import (
	"context"
	"io"
)

// A server may have two parts: a front inside the binary, which speaks MCP, and a body,
// a program that a driver runs and that the front speaks with in a way of their own. All
// that is said of instances is said of the body: it is started, adopted, held, frozen
// and suspended, and what it remembers is what the server remembers. The front remembers
// nothing that counts, and is made anew with every link.

// A Fronter is a driver that has fronts. Its own instances of one have no body: they
// list what the server lists, and can do nothing.
type Fronter interface {
	Driver
	// Front puts the front that spec.Front names before a body, and returns its link.
	// Closing the link closes the body's stream. The link ends when that stream does.
	Front(ctx context.Context, spec Spec, body Body) (Link, error)
	// Edition changes with what a front lists.
	Edition(front string) string
}

// A Body is the running program behind a front.
type Body struct {
	Instance
	Stream Stream
	// Fresh is whether the program was started anew and has heard nothing yet. Else a
	// front spoke with it before, which may have left it in the middle of something.
	Fresh bool
	// Copy is whether it is one of several copies of a program, and does not know.
	Copy bool
}

// A Porter is an instance that takes files while it runs.
type Porter interface {
	// Put writes a file into a directory of the instance's state, whole or not at all,
	// and returns its path as the program sees it. Names begin with no dot and have no
	// slash.
	Put(ctx context.Context, dir, name string, r io.Reader) (path string, err error)
}
