package main

import (
	"context"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// followCalls prints calls as they come.
func (c *cli) followCalls(ctx context.Context, q client.CallQuery) error {
	f := client.Follower{CallQuery: q, Gap: func() {
		c.say("tine: too many calls were made meanwhile; some of them are not shown")
	}}
	return follow(ctx, false, func(ctx context.Context, each func(api.Call) error) error {
		return c.keepRunning(ctx, func(g *gateway) (came bool, err error) {
			err = f.Run(ctx, g.Client, func(call api.Call) error {
				came = true
				return each(call)
			})
			return came, err
		})
	}, growing(c, c.callTable(nil), c.callRow))
}
