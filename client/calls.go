package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/tine-mcp/tine/api"
)

// CallQuery chooses calls of the journal. Zero fields choose all.
type CallQuery struct {
	Server    string
	Session   string
	Run       string // of the token that they were made with
	Principal string
	Failed    bool      // only those whose outcome is not ok
	Since     time.Time // only those from then on
	Before    string    // the Next of the page before
	Limit     int       // how many; zero leaves it to the gateway
}

func (q CallQuery) values() url.Values {
	v := url.Values{}
	set := func(key, value string) {
		if value != "" {
			v.Set(key, value)
		}
	}
	set("server", q.Server)
	set("session", q.Session)
	set("run", q.Run)
	set("principal", q.Principal)
	set("before", q.Before)
	if q.Failed {
		v.Set("failed", "1")
	}
	if !q.Since.IsZero() {
		v.Set("since", q.Since.UTC().Format(time.RFC3339Nano))
	}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	return v
}

// Calls returns a page of the journal, newest first, with secrets masked and
// without results.
func (c *Client) Calls(ctx context.Context, q CallQuery) (*api.CallList, error) {
	return get[api.CallList](ctx, c, q.values(), "v1", "calls")
}

// JournalCall returns one call of the journal with its result, secrets masked.
func (c *Client) JournalCall(ctx context.Context, id string) (*api.Call, error) {
	return get[api.Call](ctx, c, nil, "v1", "calls", id)
}

// Replay makes a call of the journal again, with the same arguments. Its effects
// happen again: the client does not check whether that is harmless.
func (c *Client) Replay(ctx context.Context, id string) (*api.Replay, error) {
	var out api.Replay
	if err := c.do(ctx, http.MethodPost, nil, nil, &out, "v1", "calls", id, "replay"); err != nil {
		return nil, err
	}
	if len(out.Result) == 0 {
		return nil, fmt.Errorf("%s answered the replay of %s without a result", c.URL(), id)
	}
	return &out, nil
}
