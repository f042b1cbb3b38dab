package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"

	"github.com/tine-mcp/tine/api"
)

// CallWithProgress is CallIn that also passes the server's progress to tell, from one
// goroutine; tell may be nil. If there was progress the result is on one line, and
// otherwise as it came.
func (c *Client) CallWithProgress(ctx context.Context, session, tool string, arguments json.RawMessage, tell func(api.CallProgress)) (json.RawMessage, error) {
	out, err := c.CallTool(ctx, api.CallRequest{Tool: tool, Arguments: arguments, Session: session}, tell)
	if err != nil {
		return nil, err
	}
	return out.Result, nil
}

// CallTool is CallWithProgress with all that a request may say, and the id of the call.
func (c *Client) CallTool(ctx context.Context, in api.CallRequest, tell func(api.CallProgress)) (*api.CallResponse, error) {
	r := request{method: http.MethodPost, in: in, accept: "application/json", path: []string{"v1", "call"}}
	if tell != nil {
		r.accept += ", application/x-ndjson"
	}
	resp, err := c.send(ctx, r, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	what := "POST " + c.at(r.path).Redacted()
	var last api.CallEvent
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/x-ndjson") && tell != nil {
		err = c.callLines(resp.Body, &last, tell)
	} else {
		var raw []byte
		if raw, err = readBounded(resp.Body, c.maxBody); err == nil {
			if err := json.Unmarshal(raw, &last); err != nil {
				return nil, fmt.Errorf("%s: the answer is not that of Tine's control API (%w); check the URL", what, err)
			}
		}
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("%s: read the answer: %w", what, context.Cause(ctx))
	case err != nil:
		return nil, fmt.Errorf("%s: read the answer: %w", what, err)
	case last.Error != nil:
		last.Error.Status = last.Status
		return nil, last.Error
	case len(last.Result) == 0:
		return nil, fmt.Errorf("%s answered a call of %s without a result", c.URL(), in.Tool)
	}
	return &api.CallResponse{Result: last.Result, Call: last.Call}, nil
}

// callLines reads events until the last one.
func (c *Client) callLines(body io.Reader, last *api.CallEvent, tell func(api.CallProgress)) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 64<<10), int(min(c.maxBody, math.MaxInt32)))
	for lines.Scan() {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		var event api.CallEvent
		if err := json.Unmarshal(line, &event); err != nil {
			return fmt.Errorf("a line of it is not an event of a call (%w); check the URL", err)
		}
		if event.Progress == nil {
			*last = event
			return nil
		}
		tell(*event.Progress)
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("it is larger than the limit of %d bytes", c.maxBody)
	} else if err != nil {
		return err
	}
	return fmt.Errorf("%w before the result; whether it was carried out is unknown", io.ErrUnexpectedEOF)
}
