package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/wire"
)

// Startup is a tool that a new instance must answer before it counts as
// started. A server may have shaken hands and still be loading what it serves.
type Startup struct {
	Tool      string
	Arguments json.RawMessage // an object; nil for none
}

// check asks a new instance what it must be able to answer. One that was adopted
// has answered before.
func (u *Upstream) check(ctx context.Context, conn *Conn) error {
	if u.o.Startup == nil {
		return nil
	}
	tool := u.o.Startup.Tool
	arguments := u.o.Startup.Arguments
	if arguments == nil {
		arguments = json.RawMessage("{}")
	}
	params, err := json.Marshal(struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}{tool, arguments})
	if err != nil {
		return fmt.Errorf("startup check: %w", err)
	}
	res, err := conn.simple(ctx, wire.MethodCallTool, params)
	switch {
	case err != nil:
		// Which deadline it was does not matter to who waits for the start.
		var ours *api.Error
		if errors.As(err, &ours) {
			return failure(ours.Kind, u.Server(), ours.Retryable, "its startup check, tool %q, got no answer: %s", tool, Reason(ours))
		}
		return err
	case res.Error != nil:
		return failure(api.KindInfrastructure, u.Server(), true, "its startup check, tool %q, failed: %s", tool, beginning(wire.ParseError(res.Error).Message))
	}
	if at, err := wire.Find(res.Result, "isError"); err == nil && at.Ok() && string(at.Of(res.Result)) == "true" {
		return failure(api.KindInfrastructure, u.Server(), true, "its startup check, tool %q, failed: %s", tool, firstText(res.Result))
	}
	return nil
}

// firstText is the beginning of the first text of a tool's result.
func firstText(result []byte) string {
	at, err := wire.Find(result, "content")
	if err != nil || !at.Ok() {
		return beginning("")
	}
	list := at.Of(result)
	items, err := wire.Items(list)
	if err != nil || len(items) == 0 {
		return beginning("")
	}
	return beginning(wire.FindString(items[0].Of(list), "text"))
}

// beginning is as much of what a server says as an error has room for.
func beginning(text string) string {
	const most = 300
	switch {
	case text == "":
		return "it said no more"
	case len(text) > most:
		return strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}
