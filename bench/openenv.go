package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

// openEnvGroup is the group of rows about OpenEnv's wire.
const openEnvGroup = "openenv"

// rowStep is the row about one step of an episode.
const rowStep = "step"

// The environments that are measured, by their names and those of their servers.
const (
	envPython = "python" // the tool of the bare server, over stdio
	envGo     = "go"     // the echo server, over stdio
)

// openEnvTrials is every row about OpenEnv, in the order of the report.
func openEnvTrials() []*trial {
	return []*trial{{
		Group: openEnvGroup, Name: rowStep, About: "one step of an episode over its WebSocket, against OpenEnv's own server with the tool in its process",
		needs: needOpenEnv, run: (*trials).openEnvStep,
	}}
}

// openEnvPython is the interpreter that has OpenEnv, relative to toolsFolder.
const openEnvPython = "openenv/venv/bin/python"

func findOpenEnv() (string, error) {
	tools, err := toolsFolder()
	if err != nil {
		return "", err
	}
	python := filepath.Join(tools, openEnvPython)
	if _, err := os.Stat(python); err != nil {
		return "", errors.New("there is no " + python + "; run: make setup")
	}
	return python, nil
}

func needOpenEnv(context.Context, settings) error {
	_, err := findOpenEnv()
	return err
}

//go:embed openenvecho.py
var openEnvProgram []byte

// openEnvStep times steps of OpenEnv's own server and of ours, in as many episodes at once
// as there are callers.
func (t *trials) openEnvStep(ctx context.Context) (_ []reading, err error) {
	python, err := findOpenEnv()
	if err != nil {
		return nil, err
	}
	if err := t.g.guard(ctx); err != nil {
		return nil, err
	}
	script := filepath.Join(t.g.dir, "openenvecho.py")
	if err := os.WriteFile(script, openEnvProgram, 0o644); err != nil {
		return nil, err
	}
	bare, url, err := t.bareOpenEnv(ctx, python, script)
	if err != nil {
		return nil, err
	}
	defer bare.stop()
	gate, err := t.g.serveTine(ctx, "openenv", map[string]any{
		"servers": map[string]serverEntry{
			envPython: {Command: python, Args: []string{script, "mcp"}},
			envGo:     {Command: t.g.self, Args: t.g.roleArgs("echo-stdio", "openenv")},
		},
		"environments": map[string]any{envPython: map[string]any{"servers": []string{envPython}}, envGo: map[string]any{"servers": []string{envGo}}},
		"sessions":     unbounded(),
	})
	if err != nil {
		return nil, err
	}
	defer gate.stop()
	sides := []struct {
		name, server, url string
		p                 *process
	}{
		{"openenv, bare", "", url, bare},
		{"tine, the same tool over stdio", envPython, gate.url + "/openenv/" + envPython, gate.process},
		{"tine, a tool in Go over stdio", envGo, gate.url + "/openenv/" + envGo, gate.process},
	}
	var ids atomic.Uint64
	var all []reading
	for _, n := range t.s.Callers {
		c := &contest{shows: showsTail}
		var open []caller
		for _, s := range sides {
			callers, err := dialEpisodes(ctx, s.url, n, t.s.Payload)
			open = append(open, callers...)
			if err != nil {
				closeAll(open)
				return nil, s.p.explain(err)
			}
			side := &side{&series{name: fmt.Sprintf("%s, %d at once", s.name, n), server: s.server}, func() ([]time.Duration, error) {
				warm := drive(ctx, callers, t.s.Duration/5, t.s.MaxCalls, &ids)
				l := drive(ctx, callers, t.s.Duration, t.s.MaxCalls, &ids)
				if err := errors.Join(warm.first, l.first, ctx.Err()); err != nil {
					return nil, s.p.explain(err)
				}
				return l.latencies, nil
			}}
			if s.server == "" {
				c.floor = side
			} else {
				c.ours = append(c.ours, side)
			}
		}
		readings, err := c.rounds(t.s.Rounds)
		closeAll(open)
		if err != nil {
			return nil, err
		}
		all = append(all, readings...)
	}
	return all, nil
}

func closeAll(callers []caller) {
	for _, c := range callers {
		c.close()
	}
}

// bareOpenEnv starts OpenEnv's own server.
func (t *trials) bareOpenEnv(ctx context.Context, python, script string) (*process, string, error) {
	p, err := launch(t.g.launcher, t.g.dir, "openenv-bare", true, python, script, "serve")
	if err != nil {
		return nil, "", err
	}
	t.g.procs = append(t.g.procs, p)
	// A read that nothing answers ends with the process.
	defer context.AfterFunc(ctx, func() { _ = p.cmd.Process.Kill() })()
	port, err := bufio.NewReader(p.stdout).ReadString('\n')
	if err != nil {
		return nil, "", p.explain(err)
	}
	return p, "http://127.0.0.1:" + strings.TrimSpace(port), nil
}

// episodeCaller is an episode whose steps call echo.
type episodeCaller struct {
	conn    *websocket.Conn
	payload int
}

// dialEpisodes begins so many episodes, and makes a step in each.
func dialEpisodes(ctx context.Context, url string, n, payload int) ([]caller, error) {
	var all []caller
	for range n {
		conn, _, err := websocket.Dial(ctx, strings.Replace(url, "http", "ws", 1)+"/ws", nil)
		if err != nil {
			return all, err
		}
		conn.SetReadLimit(maxReply)
		c := &episodeCaller{conn, payload}
		all = append(all, c)
		first, cancel := context.WithTimeout(ctx, boxTimeout)
		_, err = c.say(first, `{"type":"reset","data":{}}`)
		if err == nil {
			err = c.call(first, 0)
		}
		cancel()
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

func (c *episodeCaller) say(ctx context.Context, message string) ([]byte, error) {
	if err := c.conn.Write(ctx, websocket.MessageText, []byte(message)); err != nil {
		return nil, err
	}
	_, answer, err := c.conn.Read(ctx)
	return answer, err
}

// call makes a step, and looks whether the tool gave its text back.
func (c *episodeCaller) call(ctx context.Context, id uint64) error {
	text := fmt.Sprintf("%0*d", c.payload, id)
	answer, err := c.say(ctx, `{"type":"step","data":{"type":"call_tool","tool_name":"echo","arguments":{"text":"`+text+`"}}}`)
	if err != nil {
		return err
	}
	var got struct {
		Data struct {
			Observation struct {
				Result struct {
					Content []struct{ Text string }
				}
			}
		}
	}
	if err := json.Unmarshal(answer, &got); err != nil {
		return err
	}
	if r := got.Data.Observation.Result.Content; len(r) != 1 || r[0].Text != text {
		return fmt.Errorf("step %d is answered with %.300s", id, answer)
	}
	return nil
}

func (c *episodeCaller) close() { _ = c.conn.Close(websocket.StatusNormalClosure, "") }
