//go:build unix

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/client"
)

// A shelf is a server that keeps values under keys, and how to speak to it. Keys
// and values are words; a key may have a folder before it, as in a/b.
type shelf struct {
	server string
	// put keeps a value; where the shelf has one already it is replaced, or on
	// one that only grows the new one is added.
	put func(ctx context.Context, u user, key, value string, replaces bool) error
	// drop takes a key away; nil where nothing can be.
	drop  func(ctx context.Context, u user, key string) error
	all   func(ctx context.Context, u user) (map[string]string, error)
	grows bool
	// serial is set of servers that lose one of two changes made at once.
	serial bool
}

// user uses one server of one session.
type user struct {
	c       *client.Client
	session string
	server  string
}

func (u user) call(ctx context.Context, tool string, args any) (string, error) {
	return use(ctx, u.c, u.session, u.server+"__"+tool, args)
}

type entity struct {
	Name         string   `json:"name"`
	EntityType   string   `json:"entityType"`
	Observations []string `json:"observations"`
}

// expect turns an answer that does not have a word in it into an error: it is
// that of another call.
func expect(text, word string, err error) error {
	if err == nil && !strings.Contains(text, word) {
		return &wrongAnswer{word, text}
	}
	return err
}

type wrongAnswer struct{ want, got string }

func (e *wrongAnswer) Error() string {
	return fmt.Sprintf("the call about %q was answered %q", e.want, e.got)
}

// memoryShelf is the built-in memory server, or the reference one.
func memoryShelf(server string) *shelf {
	return &shelf{
		server: server,
		grows:  true,
		put: func(ctx context.Context, u user, key, value string, replaces bool) error {
			if replaces {
				text, err := u.call(ctx, "add_observations", object{"observations": []object{{"entityName": key, "contents": []string{value}}}})
				return expect(text, value, err)
			}
			text, err := u.call(ctx, "create_entities", object{"entities": []entity{{key, "thing", []string{value}}}})
			return expect(text, value, err)
		},
		drop: func(ctx context.Context, u user, key string) error {
			_, err := u.call(ctx, "delete_entities", object{"entityNames": []string{key}})
			return err
		},
		all: func(ctx context.Context, u user) (map[string]string, error) {
			text, err := u.call(ctx, "read_graph", object{})
			if err != nil {
				return nil, err
			}
			var graph struct{ Entities []entity }
			if err := decodeInto([]byte(text), &graph); err != nil {
				return nil, err
			}
			all := map[string]string{}
			for _, e := range graph.Entities {
				all[e.Name] = strings.Join(e.Observations, " ")
			}
			return all, nil
		},
	}
}

// filesShelf is the built-in files server, or the reference one with the
// workspace as its root.
func filesShelf(server string) *shelf {
	return &shelf{
		server: server,
		put: func(ctx context.Context, u user, key, value string, _ bool) error {
			if dir, _, ok := strings.Cut(key, "/"); ok {
				if _, err := u.call(ctx, "create_directory", object{"path": dir}); err != nil {
					return err
				}
			}
			text, err := u.call(ctx, "write_file", object{"path": key, "content": value})
			return expect(text, key, err)
		},
		all: func(ctx context.Context, u user) (map[string]string, error) {
			text, err := u.call(ctx, "directory_tree", object{"path": "."})
			if err != nil {
				return nil, err
			}
			var tree []treeNode
			if err := decodeInto([]byte(text), &tree); err != nil {
				return nil, err
			}
			all := map[string]string{}
			paths := filesIn(nil, "", tree)
			if len(paths) == 0 {
				return all, nil
			}
			if text, err = u.call(ctx, "read_multiple_files", object{"paths": paths}); err != nil {
				return nil, err
			}
			for file := range strings.SplitSeq(text, "\n---\n") {
				path, content, ok := strings.Cut(file, ":\n")
				if !ok {
					return nil, fmt.Errorf("no file in %q", file)
				}
				all[path] = strings.TrimSuffix(content, "\n")
			}
			return all, nil
		},
	}
}

type treeNode struct {
	Name     string
	Type     string
	Children []treeNode
}

func filesIn(paths []string, dir string, tree []treeNode) []string {
	for _, n := range tree {
		if n.Type == "directory" {
			paths = filesIn(paths, dir+n.Name+"/", n.Children)
		} else {
			paths = append(paths, dir+n.Name)
		}
	}
	return paths
}

// sqliteShelf is a table of the built-in sqlite server.
func sqliteShelf(server string) *shelf {
	return &shelf{
		server: server,
		put: func(ctx context.Context, u user, key, value string, _ bool) error {
			text, err := u.call(ctx, "execute", object{"sql": fmt.Sprintf(
				"CREATE TABLE IF NOT EXISTS shelf (k TEXT PRIMARY KEY, v TEXT); INSERT OR REPLACE INTO shelf VALUES ('%s', '%s') RETURNING k, v", key, value)})
			return expect(text, value, err)
		},
		drop: func(ctx context.Context, u user, key string) error {
			_, err := u.call(ctx, "execute", object{"sql": fmt.Sprintf("DELETE FROM shelf WHERE k = '%s'", key)})
			return err
		},
		all: func(ctx context.Context, u user) (map[string]string, error) {
			text, err := u.call(ctx, "query", object{"sql": "SELECT json_group_object(k, v) AS j FROM shelf"})
			var failure *toolFailure
			if errors.As(err, &failure) && strings.Contains(failure.text, "no such table") {
				return map[string]string{}, nil
			}
			if err != nil {
				return nil, err
			}
			var result struct{ Rows []struct{ J string } }
			if err := decodeInto([]byte(text), &result); err != nil {
				return nil, err
			}
			if len(result.Rows) != 1 {
				return nil, fmt.Errorf("one row was asked for: %s", text)
			}
			all := map[string]string{}
			return all, decodeInto([]byte(result.Rows[0].J), &all)
		},
	}
}

// programShelf is the state server.
func programShelf(server string) *shelf {
	return &shelf{
		server: server,
		put: func(ctx context.Context, u user, key, value string, _ bool) error {
			text, err := u.call(ctx, "put", object{"key": key, "value": value})
			return expect(text, value, err)
		},
		drop: func(ctx context.Context, u user, key string) error {
			text, err := u.call(ctx, "del", object{"key": key})
			return expect(text, key, err)
		},
		all: func(ctx context.Context, u user) (map[string]string, error) {
			text, err := u.call(ctx, "all", object{})
			if err != nil {
				return nil, err
			}
			all := map[string]string{}
			return all, decodeInto([]byte(text), &all)
		},
	}
}

type object = map[string]any

// on makes a user of the shelf in a session.
func (s *shelf) on(c *client.Client, session string) user { return user{c, session, s.server} }

// after is what a key holds once a value was put.
func (s *shelf) after(before map[string]string, key, value string) string {
	if old, ok := before[key]; ok && s.grows {
		return old + " " + value
	}
	return value
}

// differ tells how the content differs from the expected one; empty where it
// does not.
func differ(got, want map[string]string) string {
	if maps.Equal(got, want) {
		return ""
	}
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if v, ok := got[key]; !ok {
			fmt.Fprintf(&b, "\n  %s = %q is missing", key, want[key])
		} else if v != want[key] {
			fmt.Fprintf(&b, "\n  %s is %q, want %q", key, v, want[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[key]; !ok {
			fmt.Fprintf(&b, "\n  %s = %q should not be there", key, got[key])
		}
	}
	return b.String()
}

// mustHold holds that a shelf of a session has this and nothing else.
func (s *shelf) mustHold(t testing.TB, c *client.Client, session string, want map[string]string) {
	t.Helper()
	got, err := s.all(t.Context(), s.on(c, session))
	if err != nil {
		t.Errorf("%s of %s: %v", s.server, session, err)
		return
	}
	if d := differ(got, want); d != "" {
		t.Errorf("%s of %s:%s", s.server, session, d)
	}
}

// mustPut puts a value that has to go in.
func (s *shelf) mustPut(t testing.TB, c *client.Client, session, key, value string) {
	t.Helper()
	if err := s.put(t.Context(), s.on(c, session), key, value, false); err != nil {
		t.Fatal(err)
	}
}
