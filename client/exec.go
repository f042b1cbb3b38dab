package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/tine-mcp/tine/api"
)

// Exec runs a command beside a server of a session and writes what it writes as it comes;
// a nil writer drops it. The event that it returns says how the command ended: with a
// status, by a signal or because its time was over. That the command could not be run, or
// not to its end, is an error. When ctx ends, the command is killed.
//
//	end, err := c.Exec(ctx, world.ID, api.ExecRequest{Server: "box", Argv: []string{"make", "test"}}, os.Stdout, os.Stderr)
func (c *Client) Exec(ctx context.Context, session string, in api.ExecRequest, stdout, stderr io.Writer) (*api.ExecEvent, error) {
	r := request{method: http.MethodPost, in: in, accept: "application/x-ndjson", path: []string{"v1", "sessions", session, "exec"}}
	resp, err := c.send(ctx, r, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	lines := bufio.NewReaderSize(resp.Body, 64<<10)
	for {
		line, err := readLine(lines, c.maxBody)
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return nil, fmt.Errorf("the command's output from %s broke off: %w; how it ended is unknown: look before you repeat it", c.URL(), err)
		}
		var e api.ExecEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("%s answered a line that is not of Tine's control API (%w); check the URL", c.URL(), err)
		}
		if e.Error != nil {
			return nil, e.Error
		}
		if e.Last() {
			return &e, nil
		}
		for _, part := range []struct {
			w    io.Writer
			text string
			raw  []byte
		}{{stdout, e.Stdout, e.Stdout64}, {stderr, e.Stderr, e.Stderr64}} {
			if b := append([]byte(part.text), part.raw...); part.w != nil && len(b) > 0 {
				if _, err := part.w.Write(b); err != nil {
					return nil, fmt.Errorf("write the command's output: %w", err)
				}
			}
		}
	}
}

// readLine reads a line of at most so many bytes.
func readLine(r *bufio.Reader, most int64) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		case int64(len(line)) > most:
			return nil, fmt.Errorf("a line is larger than the limit of %d bytes", most)
		}
	}
}
