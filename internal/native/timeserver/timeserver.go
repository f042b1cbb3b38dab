// Package timeserver is the built-in MCP server "time": the current time in a
// timezone, and the conversion of a time between two. It has the tools, schemas
// and results of the reference server mcp-server-time.
//
// The timezone database is linked in, so that it works in an image without one;
// the system's is used first where there is one.
package timeserver

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	_ "time/tzdata" // for machines without a timezone database

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/native/settings"
)

// Settings of the server.
type Settings struct {
	// LocalTimezone is the IANA name that tools suggest when the user names no
	// timezone; by default this machine's.
	LocalTimezone string `json:"local_timezone"`
}

// New returns a server. It holds nothing that would need closing.
func New(from map[string]any) (*mcp.Server, error) {
	var s Settings
	if err := settings.Decode(from, &s); err != nil {
		return nil, err
	}
	local := s.LocalTimezone
	if local == "" {
		local = systemZone()
	} else if _, err := zone(local); err != nil {
		return nil, fmt.Errorf("settings.local_timezone: %w; use an IANA name such as Europe/Paris", err)
	}
	return newServer(local, time.Now), nil
}

func newServer(local string, now func() time.Time) *mcp.Server {
	srv := mcp.NewServer(
		&mcp.Implementation{Name: "time", Title: "Time", Version: "1.0.0"},
		// The tools never change, so no change is announced.
		&mcp.ServerOptions{Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}}},
	)
	readOnly := &mcp.ToolAnnotations{
		ReadOnlyHint:    true,
		DestructiveHint: new(bool),
		IdempotentHint:  true,
		OpenWorldHint:   new(bool),
	}
	name := func(what string) map[string]any {
		return map[string]any{
			"type":        "string",
			"description": fmt.Sprintf("%s as an IANA name, such as 'America/New_York' or 'Asia/Tokyo'. Take '%s', the local one, if the user names none.", what, local),
		}
	}
	c := clock{now}
	mcp.AddTool(srv, &mcp.Tool{
		Name:        "get_current_time",
		Description: "Tells the current time in a timezone",
		Annotations: readOnly,
		InputSchema: object(map[string]any{"timezone": name("Timezone")}, "timezone"),
	}, c.current)
	mcp.AddTool(srv, &mcp.Tool{
		Name:        "convert_time",
		Description: "Converts a time of today from one timezone to another",
		Annotations: readOnly,
		InputSchema: object(map[string]any{
			"source_timezone": name("Timezone of the given time"),
			"time":            map[string]any{"type": "string", "description": "The time to convert, as HH:MM on a 24-hour clock"},
			"target_timezone": name("Timezone to convert to"),
		}, "source_timezone", "time", "target_timezone"),
	}, c.convert)
	return srv
}

func object(properties map[string]any, required ...string) map[string]any {
	return map[string]any{"type": "object", "properties": properties, "required": required}
}

// Moment is a point in time as one timezone sees it.
type Moment struct {
	Timezone  string `json:"timezone"`
	Datetime  string `json:"datetime"`
	DayOfWeek string `json:"day_of_week"`
	IsDST     bool   `json:"is_dst"`
}

// Conversion is the same point in time in two timezones.
type Conversion struct {
	Source         Moment `json:"source"`
	Target         Moment `json:"target"`
	TimeDifference string `json:"time_difference"`
}

type currentArgs struct {
	Timezone string `json:"timezone"`
}

type convertArgs struct {
	Source string `json:"source_timezone"`
	Time   string `json:"time"`
	Target string `json:"target_timezone"`
}

type clock struct{ now func() time.Time }

func (c clock) current(_ context.Context, _ *mcp.CallToolRequest, in currentArgs) (*mcp.CallToolResult, Moment, error) {
	loc, err := zone(in.Timezone)
	if err != nil {
		return nil, Moment{}, err
	}
	return answer(moment(in.Timezone, c.now().In(loc)))
}

func (c clock) convert(_ context.Context, _ *mcp.CallToolRequest, in convertArgs) (*mcp.CallToolResult, Conversion, error) {
	from, err := zone(in.Source)
	if err != nil {
		return nil, Conversion{}, err
	}
	to, err := zone(in.Target)
	if err != nil {
		return nil, Conversion{}, err
	}
	hour, minute, err := parseClock(in.Time)
	if err != nil {
		return nil, Conversion{}, err
	}
	year, month, day := c.now().In(from).Date()
	src, ok := wallTime(time.Date(year, month, day, hour, minute, 0, 0, time.UTC), from)
	if !ok {
		return nil, Conversion{}, fmt.Errorf("time %s does not exist in %s on %04d-%02d-%02d: the clocks skip it", in.Time, in.Source, year, month, day)
	}
	dst := src.In(to)
	return answer(Conversion{
		Source:         moment(in.Source, src),
		Target:         moment(in.Target, dst),
		TimeDifference: difference(src, dst),
	})
}

// answer gives the value as structured content and, for clients that read text
// only, as indented JSON.
func answer[T any](v T) (*mcp.CallToolResult, T, error) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil, v, fmt.Errorf("write the answer: %w", err)
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}}, v, nil
}

// systemZone finds the IANA name of this machine's timezone: Go only says
// "Local".
func systemZone() string {
	candidates := []string{strings.TrimPrefix(os.Getenv("TZ"), ":")}
	if path, err := filepath.EvalSymlinks("/etc/localtime"); err == nil {
		if _, name, ok := strings.Cut(filepath.ToSlash(path), "zoneinfo/"); ok {
			candidates = append(candidates, name)
		}
	}
	if b, err := os.ReadFile("/etc/timezone"); err == nil {
		candidates = append(candidates, strings.TrimSpace(string(b)))
	}
	for _, name := range candidates {
		if _, err := zone(name); err == nil {
			return name
		}
	}
	return "UTC"
}
