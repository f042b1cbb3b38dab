package upstream

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/tine-mcp/tine/internal/wire"
)

// Startup is a tool that a new instance must answer before it counts as started. A
// server may complete its handshake and still be loading its data.
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
	return u.ask(ctx, conn, *u.o.Startup, "its startup check", "")
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

// beginning is the part of a server's text that fits an error.
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
