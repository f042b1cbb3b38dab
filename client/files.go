package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/tine-mcp/tine/api"
)

const mediaTar = "application/x-tar"

// filesPath is the path of a file in a session.
func filesPath(session, place, path string) []string {
	all := []string{"v1", "sessions", session, "files", place}
	for part := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		if part != "" {
			all = append(all, part)
		}
	}
	return all
}

// PutFile copies a file into a session. The place is workspace, or a server of the session;
// the path is from its root.
func (c *Client) PutFile(ctx context.Context, session, place, path string, mode uint32, content io.Reader) (*api.Put, error) {
	q := url.Values{"mode": {fmt.Sprintf("%04o", mode&0o777)}}
	return c.put(ctx, request{method: http.MethodPut, query: q, upload: content, path: filesPath(session, place, path)})
}

// PutTar copies the files of a tar to below a path of a place.
func (c *Client) PutTar(ctx context.Context, session, place, path string, archive io.Reader) (*api.Put, error) {
	return c.put(ctx, request{method: http.MethodPut, upload: archive, media: mediaTar, path: filesPath(session, place, path)})
}

func (c *Client) put(ctx context.Context, r request) (*api.Put, error) {
	var out api.Put
	if err := c.exchange(ctx, r, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// A Download is a file, or a folder as a tar. Its content ends with an error where it broke
// off.
type Download struct {
	io.ReadCloser
	Dir  bool   // the content is a tar
	Mode uint32 // of a file
	Size int64  // of a file; -1 for a folder
}

// GetFiles copies a file or a folder out of a session; with a snapshot, as that has it.
func (c *Client) GetFiles(ctx context.Context, session, place, path, snapshot string) (*Download, error) {
	q := url.Values{}
	if snapshot != "" {
		q.Set("snapshot", snapshot)
	}
	resp, err := c.send(ctx, request{method: http.MethodGet, query: q, accept: "*/*", path: filesPath(session, place, path)}, nil)
	if err != nil {
		return nil, err
	}
	d := &Download{ReadCloser: resp.Body, Size: resp.ContentLength}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), mediaTar) {
		d.Dir, d.Size = true, -1
		return d, nil
	}
	mode, err := strconv.ParseUint(resp.Header.Get("X-Tine-Mode"), 8, 32)
	if err != nil {
		resp.Body.Close()
		return nil, fmt.Errorf("%s does not look like Tine's control API; check the URL", c.URL())
	}
	d.Mode = uint32(mode)
	return d, nil
}

// ListFiles lists what is at a path of a place, with all also what is in folders below.
func (c *Client) ListFiles(ctx context.Context, session, place, path, snapshot string, all bool) (*api.FileList, error) {
	q := url.Values{"list": {"1"}}
	if all {
		q.Set("all", "1")
	}
	if snapshot != "" {
		q.Set("snapshot", snapshot)
	}
	return get[api.FileList](ctx, c, q, filesPath(session, place, path)...)
}

// Diff tells what is another in a session than in a snapshot, by id or name.
func (c *Client) Diff(ctx context.Context, session, from string) (*api.Diff, error) {
	return get[api.Diff](ctx, c, url.Values{"from": {from}}, "v1", "sessions", session, "diff")
}

// State iterates over what a built-in server of a session remembers; with a snapshot, over
// what it did there.
func (c *Client) State(ctx context.Context, session, server, snapshot string) iter.Seq2[api.StateItem, error] {
	return func(yield func(api.StateItem, error) bool) {
		q := url.Values{}
		if snapshot != "" {
			q.Set("snapshot", snapshot)
		}
		resp, err := c.send(ctx, request{method: http.MethodGet, query: q, accept: "application/x-ndjson", path: []string{"v1", "sessions", session, "state", server}}, nil)
		if err != nil {
			yield(api.StateItem{}, err)
			return
		}
		defer resp.Body.Close()
		dec := json.NewDecoder(resp.Body)
		for {
			var it api.StateItem
			err := dec.Decode(&it)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				err = fmt.Errorf("the state from %s broke off: %w", c.URL(), err)
			}
			if !yield(it, err) || err != nil {
				return
			}
		}
	}
}
