package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// serverName is the one server in the gateway's config.
const serverName = "echo"

// serverEntry is an entry of the gateway's config.
type serverEntry struct {
	URL     string   `json:"url,omitempty"`
	Command string   `json:"command,omitempty"`
	Args    []string `json:"args,omitempty"`
	Scope   string   `json:"scope,omitempty"`
	State   string   `json:"state,omitempty"`

	Policy  map[string]any `json:"policy,omitempty"`
	Journal string         `json:"journal,omitempty"`
}

// stdioEntry is our stdio server. It is shared, so that sixteen callers meet one
// process as they do without a gateway.
func (g *rig) stdioEntry(tag string) serverEntry {
	return serverEntry{Command: g.self, Args: g.roleArgs("echo-stdio", tag), Scope: "shared"}
}

// gatewayProcess is a running Tine and where it listens.
type gatewayProcess struct {
	*process
	url   string
	token string // of this machine's user
}

// configure writes the config of one gateway, all else left at its defaults,
// and returns the flags that name it and a state folder of its own.
func (g *rig) configure(name string, keys map[string]any) (state string, flags []string, err error) {
	dir := filepath.Join(g.dir, name)
	state = filepath.Join(dir, "state")
	if err := os.MkdirAll(state, 0o700); err != nil {
		return "", nil, fmt.Errorf("configure %s: %w", name, err)
	}
	// JSON is YAML too.
	text, err := json.Marshal(keys)
	if err != nil {
		return "", nil, fmt.Errorf("configure %s: %w", name, err)
	}
	file := filepath.Join(dir, "tine.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return "", nil, fmt.Errorf("configure %s: %w", name, err)
	}
	return state, []string{"--config", file, "--state", state}, nil
}

// oneServer is a config of one server and nothing else.
func oneServer(e serverEntry) map[string]any {
	return map[string]any{"servers": map[string]serverEntry{serverName: e}}
}

// serveTine starts `tine serve` with a config and waits until it listens.
func (g *rig) serveTine(ctx context.Context, name string, keys map[string]any) (*gatewayProcess, error) {
	state, flags, err := g.configure(name, keys)
	if err != nil {
		return nil, err
	}
	args := append([]string{"serve", "--listen", "127.0.0.1:0"}, flags...)
	p, err := launch(g.launcher, g.dir, name, false, g.settings.Tine, args...)
	if err != nil {
		return nil, err
	}
	g.procs = append(g.procs, p)
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	ctx, release := p.alive(ctx)
	defer release()
	url, token, err := waitURL(ctx, filepath.Join(state, "gateway.json"))
	if err != nil {
		return nil, p.explain(err)
	}
	return &gatewayProcess{p, url, token}, nil
}

// tineStdio starts `tine stdio` with a state folder of its own, so that it
// joins no other gateway and its process is all there is between us and the
// server.
func (g *rig) tineStdio(name string, e serverEntry) (*process, error) {
	_, flags, err := g.configure(name, oneServer(e))
	if err != nil {
		return nil, err
	}
	p, err := launch(g.launcher, g.dir, name, true, g.settings.Tine, append([]string{"stdio"}, flags...)...)
	if err != nil {
		return nil, err
	}
	g.procs = append(g.procs, p)
	return p, nil
}

// waitURL waits for the file in which a gateway says where it listens.
func waitURL(ctx context.Context, file string) (url, token string, err error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		text, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", "", fmt.Errorf("find where it listens: %w", err)
		}
		var said struct {
			URL   string `json:"url"`
			Token string `json:"token"`
		}
		// Text that is no JSON yet is a file in the making.
		if err == nil && json.Unmarshal(text, &said) == nil && said.URL != "" {
			return said.URL, said.Token, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return "", "", fmt.Errorf("it did not say in %s where it listens: %w", file, context.Cause(ctx))
		}
	}
}
