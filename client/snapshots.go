package client

import (
	"context"
	"io"
	"iter"
	"mime"
	"net/http"
	"net/url"

	"github.com/tine-mcp/tine/api"
)

// SnapshotQuery chooses snapshots. Zero fields choose all that the caller may see,
// without automatic ones.
type SnapshotQuery struct {
	Owner  string
	Labels map[string]string
	Auto   bool   // automatic ones too
	Limit  int    // of one page; zero leaves it to the gateway
	After  string // the Next of the page before
}

func (q SnapshotQuery) values() url.Values {
	v := page(q.Limit, q.After)
	set(v, "owner", q.Owner)
	setLabels(v, q.Labels)
	if q.Auto {
		v.Set("auto", "true")
	}
	return v
}

// MakeSnapshot freezes a session. With a name the snapshot is a template.
func (c *Client) MakeSnapshot(ctx context.Context, session string, in api.SnapshotRequest, options ...CreateOption) (*api.Snapshot, error) {
	return create[api.Snapshot](ctx, c, in, options, "v1", "sessions", session, "snapshots")
}

// Snapshots returns a page of snapshots, newest first.
func (c *Client) Snapshots(ctx context.Context, q SnapshotQuery) (*api.SnapshotList, error) {
	return get[api.SnapshotList](ctx, c, q.values(), "v1", "snapshots")
}

// AllSnapshots goes through the snapshots of all pages. It ends after the first
// error.
func (c *Client) AllSnapshots(ctx context.Context, q SnapshotQuery) iter.Seq2[api.Snapshot, error] {
	return pages(q.After, func(after string) ([]api.Snapshot, string, error) {
		q.After = after
		return snapshotsOf(c.Snapshots(ctx, q))
	})
}

// SessionSnapshots goes through the snapshots of one session, newest first, also
// automatic ones. It ends after the first error.
func (c *Client) SessionSnapshots(ctx context.Context, session string) iter.Seq2[api.Snapshot, error] {
	return pages("", func(after string) ([]api.Snapshot, string, error) {
		return snapshotsOf(get[api.SnapshotList](ctx, c, page(0, after), "v1", "sessions", session, "snapshots"))
	})
}

func snapshotsOf(list *api.SnapshotList, err error) ([]api.Snapshot, string, error) {
	if err != nil {
		return nil, "", err
	}
	return list.Snapshots, list.Next, nil
}

// Snapshot returns one snapshot, by id or name.
func (c *Client) Snapshot(ctx context.Context, ref string) (*api.Snapshot, error) {
	return get[api.Snapshot](ctx, c, nil, "v1", "snapshots", ref)
}

// DeleteSnapshot deletes a snapshot, by id or name.
func (c *Client) DeleteSnapshot(ctx context.Context, ref string) error {
	return c.do(ctx, http.MethodDelete, nil, nil, nil, "v1", "snapshots", ref)
}

// An Export is a snapshot that is being read. The caller closes it.
type Export struct {
	io.ReadCloser
	Name string // what the gateway would call the file; a plain file name
}

// ExportSnapshot reads a snapshot, by id or name, as one file, which may hold
// secrets. Reading fails if the gateway breaks off.
func (c *Client) ExportSnapshot(ctx context.Context, ref string) (*Export, error) {
	r := request{method: http.MethodGet, accept: "application/octet-stream", path: []string{"v1", "snapshots", ref, "export"}}
	resp, err := c.send(ctx, r, nil)
	if err != nil {
		return nil, err
	}
	name := "snapshot.tine"
	if _, params, err := mime.ParseMediaType(resp.Header.Get("Content-Disposition")); err == nil && plainFile(params["filename"]) {
		name = params["filename"]
	}
	return &Export{resp.Body, name}, nil
}

// plainFile reports whether a name is a plain file name without a path.
func plainFile(name string) bool {
	if name == "" || name[0] == '.' || len(name) > 200 {
		return false
	}
	for _, c := range name {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// ImportSnapshot makes a snapshot from an export of this or another gateway; with
// an empty name it has the one in the file, if that is free. Two imports with one
// key are the same if their names are, with any files.
func (c *Client) ImportSnapshot(ctx context.Context, name string, file io.Reader, options ...CreateOption) (*api.Snapshot, error) {
	q := url.Values{}
	set(q, "name", name)
	var out api.Snapshot
	r := request{method: http.MethodPost, query: q, upload: file, path: []string{"v1", "snapshots", "import"}}
	for _, o := range options {
		o(&r)
	}
	if err := c.exchange(ctx, r, &out); err != nil {
		return nil, err
	}
	return &out, nil
}
