package main

import (
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/builtin"
	"github.com/tine-mcp/tine/internal/driver/process"
	"github.com/tine-mcp/tine/internal/driver/url"
	"github.com/tine-mcp/tine/internal/native/everything"
	"github.com/tine-mcp/tine/internal/native/fetch"
	"github.com/tine-mcp/tine/internal/native/timeserver"
)

// drivers is the one list of drivers and of the servers inside the binary.
func drivers(maxFrame int) map[string]driver.Driver {
	all := []driver.Driver{
		process.New(process.Options{MaxFrame: maxFrame}),
		url.New(),
		builtin.New(map[string]builtin.Factory{
			"time":       timeserver.New,
			"fetch":      fetch.New,
			"everything": everything.New,
		}),
	}
	byName := make(map[string]driver.Driver, len(all))
	for _, d := range all {
		byName[d.Info().Name] = d
	}
	return byName
}
