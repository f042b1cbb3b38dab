package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tine-mcp/tine/internal/store"
)

// The handle of a running instance lies in the store, and beside the instance's
// folder as KEY.handle: a store that was lost, or lost its last writes, costs no
// instance that still runs. The store is written first and forgets last, so that
// a file alone means that the store has lost it. Both stay until the instance has
// ended, also when its session was closed before.
const handleMark = ".handle"

// keptHandle is a handle in its file.
type keptHandle struct {
	Key     string          `json:"key"`
	Driver  string          `json:"driver"`
	Server  string          `json:"server"`
	Session string          `json:"session,omitempty"`
	Dir     string          `json:"dir"`
	Data    json.RawMessage `json:"data,omitempty"`
	Spec    string          `json:"spec"`
	Link    json.RawMessage `json:"link,omitempty"`
	Created time.Time       `json:"created"`
}

func (r *Registry) handlePath(key string) string { return filepath.Join(r.o.Dir, key+handleMark) }

// putHandle records a running instance. Without its file it is adopted all the
// same, as long as the store is there.
func (r *Registry) putHandle(ctx context.Context, h store.Handle) error {
	if err := r.o.Local.PutHandle(ctx, h); err != nil {
		return err
	}
	k := keptHandle{h.Key, h.Driver, h.Server, h.Session, h.Dir, h.Data, h.SpecHash, h.Link, h.Created}
	if err := writeSealed(r.handlePath(h.Key), k); err != nil {
		r.o.Log.Warn("handle not written beside its instance", "server", h.Server, "session", h.Session, "err", err)
	}
	return nil
}

// dropHandle forgets an instance that has ended.
func (r *Registry) dropHandle(ctx context.Context, key string) error {
	if err := os.Remove(r.handlePath(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a handle: %w", err)
	}
	return r.o.Local.DeleteHandle(ctx, key)
}

// handles lists the instances of an earlier gateway. Those that only their files
// know are in the store from then on.
func (r *Registry) handles(ctx context.Context) ([]store.Handle, error) {
	all, err := r.o.Local.Handles(ctx)
	if err != nil {
		return nil, err
	}
	known := make(map[string]bool, len(all))
	for _, h := range all {
		known[h.Key] = true
	}
	entries, err := os.ReadDir(r.o.Dir)
	if err != nil {
		return nil, fmt.Errorf("listing the folder of instances: %w", err)
	}
	for _, e := range entries {
		if strings.Contains(e.Name(), handleMark+partMark) {
			_ = os.Remove(filepath.Join(r.o.Dir, e.Name())) // it was being written
			continue
		}
		key, ok := strings.CutSuffix(e.Name(), handleMark)
		if !ok || known[key] {
			continue
		}
		h, err := r.readHandle(key)
		if err != nil {
			r.o.Log.Error("the record of an instance can't be read; the instance is ended", "file", r.handlePath(key), "err", err)
			_ = os.Remove(r.handlePath(key)) // it is good for nothing else
			continue
		}
		if err := r.o.Local.PutHandle(ctx, h); err != nil {
			return nil, err
		}
		r.o.Log.Warn("the state database lacked an instance that was left running; it is back from its own record", "server", h.Server, "session", h.Session)
		all = append(all, h)
	}
	for i := range all {
		h := &all[i]
		s := r.sessions[h.Session]
		if s == nil {
			continue
		}
		// Earlier versions wrote another session that shares the instance into the
		// handle when the origin was closed.
		if origin := s.facts.Shares[h.Server]; origin != "" && origin != h.Session {
			h.Session = origin
			if err := r.putHandle(ctx, *h); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

func (r *Registry) readHandle(key string) (store.Handle, error) {
	var k keptHandle
	if err := readSealed(r.handlePath(key), &k); err != nil {
		return store.Handle{}, err
	}
	if k.Key != key || filepath.Base(k.Dir) != key {
		return store.Handle{}, errors.New("it is that of another instance")
	}
	return store.Handle{
		Key: k.Key, Driver: k.Driver, Server: k.Server, Session: k.Session, Dir: k.Dir,
		Data: k.Data, SpecHash: k.Spec, Link: k.Link, Created: k.Created,
	}, nil
}
