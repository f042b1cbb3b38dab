package main

import (
	"context"
	"path"
	"slices"
	"strings"
)

// stdioGroup is the group of rows with a stdio server; the other groups are
// named after their era.
const stdioGroup = "stdio"

// Names of rows.
const (
	rowDirect    = "direct"
	rowRelay     = "relay"
	rowProxy     = "proxy"
	rowTine      = "tine"
	rowMerged    = "tine-merged"
	rowOff       = "tine-off"
	rowFull      = "tine-full"
	rowTine2026  = "tine-2026"
	rowTineStdio = "tine-stdio"
)

// row is one way to the echo tool.
type row struct {
	Group string
	Name  string
	About string

	// open connects n callers. It is called anew for every cell.
	open func(ctx context.Context, n int) ([]caller, error)
	// middle and upstream are the processes to watch, 0 where there is none.
	middle   func() int
	upstream func() int
	// opened is how many connections the upstream was ever opened; nil where it
	// has none.
	opened func(ctx context.Context) (int, error)
}

func (r *row) id() string { return r.Group + "/" + r.Name }

// connections is r.opened, and zero where there is none.
func (r *row) connections(ctx context.Context) (int, error) {
	if r.opened == nil {
		return 0, nil
	}
	return r.opened(ctx)
}

// usesTine is whether the row needs the gateway's binary.
func (r *row) usesTine() bool { return strings.HasPrefix(r.Name, rowTine) }

// allRows is every row there is, in the order of the report.
func allRows() []*row {
	var rows []*row
	for _, era := range []string{legacyEra, statelessEra} {
		rows = append(rows,
			&row{Group: era, Name: rowDirect, About: "the echo server itself, streamable HTTP"},
			&row{Group: era, Name: rowRelay, About: "a minimal relay that reads the body and posts it on"},
			&row{Group: era, Name: rowProxy, About: "httputil.ReverseProxy"},
			&row{Group: era, Name: rowTine, About: "Tine at /mcp/echo"},
			&row{Group: era, Name: rowMerged, About: "Tine at /mcp as echo__echo"},
			&row{Group: era, Name: rowOff, About: "Tine at /mcp/echo, no policy, no auth, no journal, no traces"},
			&row{Group: era, Name: rowFull, About: "Tine at /mcp/echo, every policy, auth by JWT, journal, traces"},
		)
	}
	return append(rows,
		&row{Group: stdioGroup, Name: rowDirect, About: "the echo server itself, stdio"},
		&row{Group: stdioGroup, Name: rowTine, About: "Tine at /mcp/echo, called with sessions"},
		&row{Group: stdioGroup, Name: rowTine2026, About: "Tine at /mcp/echo, called stateless"},
		&row{Group: stdioGroup, Name: rowTineStdio, About: "tine stdio, called as echo__echo"},
	)
}

// selectRows keeps the rows that --only names; all when it names none.
func selectRows(rows []*row, only []string) []*row {
	return slices.DeleteFunc(rows, func(r *row) bool { return !chosen(only, r.Group, r.id()) })
}

// chosen is whether --only names a row.
func chosen(only []string, group, id string) bool {
	return len(only) == 0 || slices.ContainsFunc(only, func(o string) bool {
		ok, err := path.Match(o, id)
		return o == group || ok && err == nil
	})
}
