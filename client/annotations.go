package client

import (
	"context"

	"github.com/tine-mcp/tine/api"
)

// Annotate notes something of a session, open or closed, or of one of its calls: a
// reward, the text and tokens of a turn, or any JSON. It is in the trajectory from
// then on.
func (c *Client) Annotate(ctx context.Context, session string, in api.NewAnnotation, options ...CreateOption) (*api.Annotation, error) {
	return create[api.Annotation](ctx, c, in, options, "v1", "sessions", session, "annotations")
}
