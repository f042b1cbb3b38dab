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

	"github.com/tine-mcp/tine/api"
)

// Batch sends many requests in one, and hands the answer of each item to each as the
// item ends, in any order. It returns how many items failed, and an error if the batch
// was refused or broke off: what the items came to that were not handed over is unknown
// then. With Once, which a batch with calls does not take, it may be repeated.
func (c *Client) Batch(ctx context.Context, in api.Batch, each func(api.BatchLine) error, options ...CreateOption) (failed int, err error) {
	r := request{method: http.MethodPost, in: in, accept: "application/x-ndjson", path: []string{"v1", "batch"}}
	for _, o := range options {
		o(&r)
	}
	resp, err := c.send(ctx, r, nil)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 64<<10), int(min(c.maxBody, math.MaxInt32)))
	ended := 0
	for lines.Scan() {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		var l api.BatchLine
		if err := json.Unmarshal(line, &l); err != nil || l.Item == nil && (!l.Done || l.Failed == nil) || l.Item != nil && (*l.Item < 0 || *l.Item >= len(in.Items)) {
			return 0, fmt.Errorf("the batch at %s answered with a line that is not one of a batch; check the URL", c.URL())
		}
		if l.Done {
			return *l.Failed, nil
		}
		if l.Error != nil {
			l.Error.Status = l.Status
		}
		if err := each(l); err != nil {
			return 0, err
		}
		ended++
	}
	err = lines.Err()
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case err == nil:
		err = io.ErrUnexpectedEOF
	case errors.Is(err, bufio.ErrTooLong):
		err = fmt.Errorf("an answer is larger than the limit of %d bytes", c.maxBody)
	}
	return 0, fmt.Errorf("the batch at %s broke off after %d of %d items: %w", c.URL(), ended, len(in.Items), err)
}
