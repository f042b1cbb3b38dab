// Package sqlite is the built-in MCP server "sqlite": a SQL database that forks.
//
// The database file is a persistent value in a chain of layers: which page stands
// where. SQLite reads and writes it through a VFS of this package; one transaction
// is one change of the layer, so that it is there whole or not at all whenever the
// process dies, and a fork costs the same whatever the size of the database.
//
// A call is one transaction. Nothing lasts that is not in the database: what is
// temporary, and every setting of the connection, ends with the call.
package sqlite

import (
	"fmt"
	"io"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/layer"
	"github.com/tine-mcp/tine/internal/native/settings"
	"github.com/tine-mcp/tine/internal/workspace"
)

// Settings of the server.
type Settings struct {
	// Timeout is how long a call may take.
	Timeout settings.Duration `json:"timeout"`
	// MaxRows is how many rows an answer has at most.
	MaxRows int `json:"max_rows"`
	// MaxSize is how many bytes the database may have.
	MaxSize int64 `json:"max_size"`
	// ReadOnly leaves out the tools that change something.
	ReadOnly bool `json:"readonly"`
}

func defaults() Settings {
	return Settings{Timeout: settings.Duration(30 * time.Second), MaxRows: 1000, MaxSize: 1 << 30}
}

const (
	leastSize = 64 << 10
	mostSize  = 64 << 30
	mostRows  = 100_000
)

func (s Settings) check() error {
	switch {
	case s.Timeout <= 0:
		return fmt.Errorf("settings.timeout must be more than 0, not %s", time.Duration(s.Timeout))
	case s.MaxRows < 1 || s.MaxRows > mostRows:
		return fmt.Errorf("settings.max_rows must be from 1 to %d, not %d", mostRows, s.MaxRows)
	case s.MaxSize < leastSize || s.MaxSize > mostSize:
		return fmt.Errorf("settings.max_size must be from %d to %d bytes, not %d", leastSize, int64(mostSize), s.MaxSize)
	}
	return nil
}

// CheckSettings says what is wrong with settings.
func CheckSettings(from map[string]any) error {
	_, err := read(from)
	return err
}

func read(from map[string]any) (Settings, error) {
	s := defaults()
	if err := settings.Decode(from, &s); err != nil {
		return s, err
	}
	return s, s.check()
}

// New returns a server on the database of a head, which stays the caller's. With
// files, which may be nil, CSV is read from and written to the workspace. Nothing
// is opened before the first call; Close stops the running call and closes the
// connection.
func New(from map[string]any, h *layer.Head[*DB], files workspace.FS) (*mcp.Server, io.Closer, error) {
	s, err := read(from)
	if err != nil {
		return nil, nil, err
	}
	e := newEngine(h, limits{timeout: time.Duration(s.Timeout), maxRows: s.MaxRows, maxSize: s.MaxSize})
	srv := mcp.NewServer(
		&mcp.Implementation{Name: "sqlite", Title: "SQLite", Version: "1.0.0"},
		// The tools never change, so no change is announced.
		&mcp.ServerOptions{Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}}},
	)
	t := &tools{e, files, catalogFor(files != nil, s.ReadOnly)}
	srv.AddReceivingMiddleware(t.receive)
	return srv, e, nil
}
