package everything

//lint:file-ignore SA1019 roots, sampling and logging are deprecated and still part of the protocol.

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// addBackgroundTools adds the tools that take their time or go on after they
// have answered.
func (s *server) addBackgroundTools() {
	add(s, tool{
		name: "trigger-long-running-operation", title: "Long operation", hints: pureHints,
		description: "Takes its time and reports progress after each step",
		properties: map[string]any{
			"duration": prop("number", "Seconds in all", "default", 10),
			"steps":    prop("number", "How many steps they are divided into", "default", 5),
		},
	}, s.longOperation)
	add(s, tool{
		name: "toggle-simulated-logging", title: "Simulated logging",
		description: "Switches log messages of random levels on or off",
	}, s.toggleLogging)
	add(s, tool{
		name: "toggle-subscriber-updates", title: "Simulated updates",
		description: "Switches update notifications for the resources the client is subscribed to on or off",
	}, s.toggleUpdates)
}

func (s *server) longOperation(ctx context.Context, req *mcp.CallToolRequest, in struct {
	Duration float64 `json:"duration"`
	Steps    float64 `json:"steps"`
}) (*mcp.CallToolResult, error) {
	step := seconds(in.Duration / in.Steps)
	for i := 1.0; i < in.Steps+1; i++ {
		if err := wait(ctx, step); err != nil {
			return nil, err
		}
		if err := progress(ctx, req, i, in.Steps, ""); err != nil {
			return nil, err
		}
	}
	return texts(fmt.Sprintf("Long running operation completed. Duration: %s seconds, Steps: %s.", number(in.Duration), number(in.Steps))), nil
}

// seconds keeps within what a Duration can hold.
func seconds(s float64) time.Duration {
	if !(s > 0) {
		return 0
	}
	return time.Duration(min(s, math.MaxInt64/float64(2*time.Second)) * float64(time.Second))
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// progress reports to a client that asked for it.
func progress(ctx context.Context, req *mcp.CallToolRequest, done, total float64, message string) error {
	token := req.Params.GetProgressToken()
	if token == nil {
		return nil
	}
	return req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
		ProgressToken: token, Progress: done, Total: total, Message: message,
	})
}

func (s *server) toggleLogging(ctx context.Context, req *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, error) {
	if modern(req.Session) {
		if err := logSomething(ctx, req.Session); err != nil {
			return nil, err
		}
		return texts("Sent one simulated log message, if the request's log level lets it through. In this revision of the protocol log messages belong to a request: call again for another."), nil
	}
	se := s.sessions.get(req.Session)
	se.mu.Lock()
	defer se.mu.Unlock()
	if se.stopLogging != nil {
		se.stopLogging()
		se.stopLogging = nil
		return texts("Stopped simulated logging for this session."), nil
	}
	se.stopLogging = se.begin(func(ctx context.Context) {
		every(ctx, s.pace, func(ctx context.Context) { logSomething(ctx, se.ss) })
	})
	return texts(fmt.Sprintf("Started simulated logging for this session: a message of a random level every %s. Those below the level that the client has set are not sent.", s.pace)), nil
}

func logSomething(ctx context.Context, ss *mcp.ServerSession) error {
	messages := []mcp.LoggingMessageParams{
		{Level: "debug", Data: "Debug-level message"},
		{Level: "info", Data: "Info-level message"},
		{Level: "notice", Data: "Notice-level message"},
		{Level: "warning", Data: "Warning-level message"},
		{Level: "error", Data: "Error-level message"},
		{Level: "critical", Data: "Critical-level message"},
		{Level: "alert", Data: "Alert-level message"},
		{Level: "emergency", Data: "Emergency-level message"},
	}
	return ss.Log(ctx, &messages[rand.N(len(messages))])
}

func (s *server) toggleUpdates(_ context.Context, req *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, error) {
	se := s.sessions.get(req.Session)
	se.mu.Lock()
	defer se.mu.Unlock()
	if se.stopUpdates != nil {
		se.stopUpdates()
		se.stopUpdates = nil
		return texts("Stopped simulated resource updates for this session."), nil
	}
	se.stopUpdates = se.begin(func(ctx context.Context) {
		every(ctx, s.pace, func(ctx context.Context) {
			for _, uri := range se.subscriptions() {
				s.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: uri})
			}
		})
	})
	return texts(fmt.Sprintf("Started simulated resource updates for this session: one every %s for each resource that the client is subscribed to.", s.pace)), nil
}
