package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/http"
	"net/url"

	"github.com/tine-mcp/tine/api"
)

// Trajectory reads the trajectory of a session from its first ancestor on: nothing
// in it is cut or masked. It ends after the first error; without one it is
// complete.
func (c *Client) Trajectory(ctx context.Context, session string) iter.Seq2[api.Step, error] {
	return c.steps(ctx, nil, func(api.Step) bool { return false }, "v1", "sessions", session, "trajectory")
}

// Trajectories reads the trajectories of many sessions, one after the other and the
// oldest session first. Of the query Owner, Labels and Closed count. Of is the session
// of each step, and the last step has the type api.StepEnd. It ends after the first
// error; without one it is complete.
func (c *Client) Trajectories(ctx context.Context, q SessionQuery) iter.Seq2[api.Step, error] {
	q = SessionQuery{Owner: q.Owner, Labels: q.Labels, Closed: q.Closed}
	return c.steps(ctx, q.values(), func(s api.Step) bool { return s.Type == api.StepEnd }, "v1", "trajectories")
}

// steps reads lines until the one that is the last; until the end of the answer where
// none is.
func (c *Client) steps(ctx context.Context, q url.Values, last func(api.Step) bool, path ...string) iter.Seq2[api.Step, error] {
	return func(yield func(api.Step, error) bool) {
		resp, err := c.send(ctx, request{method: http.MethodGet, query: q, accept: "application/x-ndjson", path: path}, nil)
		if err != nil {
			yield(api.Step{}, err)
			return
		}
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(make([]byte, 64<<10), int(min(c.maxBody, math.MaxInt32)))
		for lines.Scan() {
			line := bytes.TrimSpace(lines.Bytes())
			if len(line) == 0 {
				continue
			}
			var step api.Step
			if err := json.Unmarshal(line, &step); err != nil || step.Type == "" {
				yield(api.Step{}, fmt.Errorf("the trajectory from %s has a line that is not a step; check the URL", c.URL()))
				return
			}
			if !yield(step, nil) || last(step) {
				return
			}
		}
		err = lines.Err()
		switch {
		case err == nil && q == nil:
			return
		case err == nil:
			err = io.ErrUnexpectedEOF
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case errors.Is(err, bufio.ErrTooLong):
			err = fmt.Errorf("a step is larger than the limit of %d bytes", c.maxBody)
		}
		yield(api.Step{}, fmt.Errorf("the trajectory from %s broke off: %w", c.URL(), err))
	}
}
