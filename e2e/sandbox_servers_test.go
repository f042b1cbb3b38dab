//go:build linux && (amd64 || arm64)

package e2e

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/torture"
)

const quietPython = `env: {FASTMCP_CHECK_FOR_UPDATES: "off", FASTMCP_SHOW_SERVER_BANNER: "false"}`

// everythingShelf are the resources that the reference server of everything makes
// of what it is given, and keeps in memory. Their names are the keys.
func everythingShelf(g *gateway, server string) *shelf {
	return &shelf{
		server: server,
		put: func(ctx context.Context, u user, key, value string, _ bool) error {
			_, err := u.call(ctx, "gzip-file-as-resource", object{"name": key, "data": "data:text/plain," + value})
			return err
		},
		all: func(ctx context.Context, u user) (map[string]string, error) {
			r, err := g.record()
			if err != nil {
				return nil, err
			}
			s, err := open(ctx, g.url+"/s/"+u.session+"/mcp/"+server, bearer(r.Token))
			if err != nil {
				return nil, err
			}
			raw, err := s.request(ctx, "resources/list", object{})
			if err != nil {
				return nil, err
			}
			var list struct {
				Resources []struct{ Name, URI string }
			}
			if err := decodeInto(raw, &list); err != nil {
				return nil, err
			}
			all := map[string]string{}
			for _, r := range list.Resources {
				if !strings.Contains(r.URI, "/session/") {
					continue
				}
				if all[r.Name], err = unzipped(ctx, s, r.URI); err != nil {
					return nil, err
				}
			}
			return all, nil
		},
	}
}

// unzipped is what is in a resource.
func unzipped(ctx context.Context, s *session, uri string) (string, error) {
	raw, err := s.request(ctx, "resources/read", object{"uri": uri})
	if err != nil {
		return "", err
	}
	var read struct{ Contents []struct{ Blob []byte } }
	if err := decodeInto(raw, &read); err != nil {
		return "", err
	}
	if len(read.Contents) != 1 {
		return "", fmt.Errorf("%s has %d contents, want one", uri, len(read.Contents))
	}
	zipped, err := gzip.NewReader(bytes.NewReader(read.Contents[0].Blob))
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(zipped)
	return string(text), err
}

// TestSandboxServers forks servers as others wrote them, in the middle of their
// work, into several: all go on from the same moment, none is started again, and
// none sees what another does, or the parent does later.
func TestSandboxServers(t *testing.T) {
	t.Parallel()
	paths := need(t, node, npmMemory, npmFilesystem, npmEverything, "venv/bin/mcp-server-motherduck")
	for _, tt := range []struct {
		name, yaml string
		shelf      func(g *gateway) *shelf
		begins     string // what it says on its standard error when it starts
	}{
		{"memory", yamlServer("it", paths[0], paths[1:2], sandboxed, "env: {MEMORY_FILE_PATH: /tmp/graph.jsonl}"),
			func(*gateway) *shelf { return memoryShelf("it") }, "Knowledge Graph MCP Server running"},
		{"filesystem", yamlServer("it", paths[0], []string{paths[2], "${workspace}"}, sandboxed, "workspace: true"),
			func(*gateway) *shelf { return filesShelf("it") }, "Secure MCP Filesystem Server running"},
		{"everything", yamlServer("it", paths[0], paths[3:4], sandboxed),
			func(g *gateway) *shelf { return everythingShelf(g, "it") }, "Starting default (STDIO) server"},
		{"python", yamlServer("it", paths[4], []string{"--db-path", ":memory:", "--read-write"}, sandboxed, quietPython),
			func(*gateway) *shelf { return duckShelf("it") }, "Waiting for client connection"},
		{"go", strings.Replace(yamlSand(t, nil), "  sand:", "  it:", 1),
			func(*gateway) *shelf { return programShelf("it") }, "sandserver: begins"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := startCell(t, "servers:\n"+tt.yaml)
			forkCrowd(t, w, tt.shelf(w.gateway), tt.begins, torture.Or(4, 20))
			w.over(t)
		})
	}
}

// forkCrowd does that with the one server of a gateway. begins is what it says on
// its standard error when it starts.
func forkCrowd(t *testing.T, w *cell, shelf *shelf, begins string, siblings int) {
	c := w.client(t)
	parent := openSession(t, c, api.NewSession{}).ID
	put := func(ctx context.Context, session, key, value string) error {
		return shelf.put(ctx, shelf.on(c, session), key, value, false)
	}
	// A client keeps working in the parent.
	var acked atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	worked := make(chan error, 1)
	step := func() error {
		n := acked.Load() + 1
		if err := put(t.Context(), parent, fmt.Sprint("step", n), fmt.Sprint("v", n)); err != nil {
			return err
		}
		acked.Store(n)
		return nil
	}
	if err := step(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for ctx.Err() == nil {
			if err := step(); err != nil {
				worked <- err
				return
			}
		}
		worked <- nil
	}()
	before := acked.Load()
	children := fork(t, c, parent, siblings)
	after := acked.Load() + 1 // one may be done and not yet counted
	stop()
	if err := <-worked; err != nil {
		t.Errorf("in the parent: %v", err)
	}

	steps := func(n int64) map[string]string {
		all := map[string]string{}
		for i := range n {
			all[fmt.Sprint("step", i+1)] = fmt.Sprint("v", i+1)
		}
		return all
	}
	// All of them are of one moment, between the two.
	base, err := shelf.all(t.Context(), shelf.on(c, children[0].ID))
	if err != nil {
		t.Fatal(err)
	}
	if n := int64(len(base)); n < before || n > after || !maps.Equal(base, steps(n)) {
		t.Fatalf("a child has %v, which the parent never had: it did %d steps before the fork, and %d after it", base, before, after)
	}
	each(t, children, func(_ int, id string) error {
		got, err := shelf.all(t.Context(), shelf.on(c, id))
		if err == nil && !maps.Equal(got, base) {
			err = fmt.Errorf("child %s begins otherwise than its siblings: %s", id, differ(got, base))
		}
		return errors.Join(err, put(t.Context(), id, "own-"+id, id))
	})
	if err := put(t.Context(), parent, "late", "parent"); err != nil {
		t.Error(err)
	}
	each(t, children, func(_ int, id string) error {
		want := maps.Clone(base)
		want["own-"+id] = id
		shelf.mustHold(t, c, id, want)
		return nil
	})
	want := steps(acked.Load())
	want["late"] = "parent"
	shelf.mustHold(t, c, parent, want)

	// The one that was asked for the server's lists ends by itself.
	var boxes map[string]int
	if err := eventually(func() error {
		if boxes = w.note(); len(boxes) != siblings+1 {
			return fmt.Errorf("there are %d sandboxes, want %d", len(boxes), siblings+1)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	started := 0
	for dir := range boxes {
		said, err := os.ReadFile(filepath.Join(dir, "stderr"))
		if err != nil {
			t.Error(err)
		}
		started += strings.Count(string(said), begins)
	}
	if started != 1 {
		t.Errorf("of %d instances %d were started, want only the parent's", len(boxes), started)
	}
}
