package drivertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/testkit"
)

// Peer is a client at the other end of a link: it calls one tool at a time.
type Peer struct {
	inst driver.Instance
	link driver.Link
	next int

	TooLarge int // frames that passed the limit
	Stray    int // lines that are no message
	Other    int // messages that were not the answer
}

// NewPeer returns a client that has not shaken hands.
func NewPeer(inst driver.Instance, link driver.Link) *Peer { return &Peer{inst: inst, link: link} }

// Dial opens the instance's link and shakes hands.
func Dial(t testing.TB, inst driver.Instance) *Peer {
	t.Helper()
	link, err := inst.Dial(ctx(t))
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	if link.Stream != nil {
		t.Cleanup(func() { link.Stream.Close() })
	}
	p := NewPeer(inst, link)
	if err := p.shakeHands(ctx(t)); err != nil {
		t.Fatalf("initialize: %v", err)
	}
	return p
}

func (p *Peer) shakeHands(ctx context.Context) error {
	if _, err := p.request(ctx, "initialize", map[string]any{
		"protocolVersion": "2025-11-25",
		"capabilities":    map[string]any{},
		"clientInfo":      map[string]any{"name": "drivertest", "version": "1"},
	}); err != nil || p.link.Stream == nil {
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w; %s", err, p.ended())
		}
		return err
	}
	return p.link.Stream.WriteFrame(ctx, []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
}

// ended is how an instance ended whose link did, and what it wrote last.
func (p *Peer) ended() string {
	how := "the instance goes on"
	select {
	case <-p.inst.Done():
		how = fmt.Sprintf("the instance ended: %v", p.inst.Err())
	case <-time.After(testkit.Patience / 10):
	}
	r, err := p.inst.Logs(4096)
	if err != nil {
		return fmt.Sprintf("%s; its log: %v", how, err)
	}
	defer r.Close()
	said, _ := io.ReadAll(r)
	return fmt.Sprintf("%s; it wrote: %q", how, said)
}

// Call calls a tool and returns the text of its answer.
func (p *Peer) Call(t testing.TB, tool string, arguments map[string]any) string {
	t.Helper()
	text, err := p.TryCall(ctx(t), tool, arguments)
	if err != nil {
		t.Fatalf("call %s: %v", tool, err)
	}
	return text
}

// TryCall is Call for calls that may fail.
func (p *Peer) TryCall(ctx context.Context, tool string, arguments map[string]any) (string, error) {
	raw, err := p.request(ctx, "tools/call", map[string]any{"name": tool, "arguments": arguments})
	if err != nil {
		return "", err
	}
	return text(raw)
}

func text(raw json.RawMessage) (string, error) {
	var result struct {
		Content []struct{ Text string }
	}
	if err := json.Unmarshal(raw, &result); err != nil {
		return "", err
	}
	if len(result.Content) != 1 {
		return "", fmt.Errorf("odd result %.200s", raw)
	}
	return result.Content[0].Text, nil
}

func frame(id, method string, params any) []byte {
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	if err != nil {
		panic(err)
	}
	return b
}

func callFrame(id, tool string, arguments map[string]any) []byte {
	return frame(id, "tools/call", map[string]any{"name": tool, "arguments": arguments})
}

func (p *Peer) request(ctx context.Context, method string, params any) (json.RawMessage, error) {
	p.next++
	id := fmt.Sprint("c", p.next)
	if p.link.HTTP != nil {
		return post(ctx, p.link.HTTP, frame(id, method, params))
	}
	if err := p.link.Stream.WriteFrame(ctx, frame(id, method, params)); err != nil {
		return nil, err
	}
	return p.answer(id)
}

// needed keeps an instance from being parked until release is called.
func needed(inst driver.Instance) (release func()) {
	parker, ok := inst.(driver.Parker)
	if !ok {
		return func() {}
	}
	parker.Acquire()
	return func() { parker.Release() }
}

// answer reads until the answer with that id.
func (p *Peer) answer(id string) (json.RawMessage, error) {
	defer needed(p.inst)()
	stuck := time.AfterFunc(testkit.Patience, func() { p.link.Stream.Close() })
	defer stuck.Stop()
	for {
		b, err := p.link.Stream.ReadFrame()
		if errors.As(err, new(*driver.FrameTooLarge)) {
			p.TooLarge++
			continue
		}
		if errors.As(err, new(*driver.StrayLine)) {
			p.Stray++
			continue
		}
		if err != nil {
			return nil, err
		}
		r, err := parse(b)
		if err != nil {
			return nil, err
		}
		if r.ID != id {
			p.Other++
			continue
		}
		return r.Result, r.err()
	}
}

type response struct {
	ID     any             `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

func (r response) err() error {
	if r.Error != nil {
		return fmt.Errorf("answered %s", r.Error)
	}
	return nil
}

func parse(b []byte) (response, error) {
	var r response
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("frame %.200q: %w", b, err)
	}
	return r, nil
}

func post(ctx context.Context, e *driver.Endpoint, body []byte) (json.RawMessage, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name, values := range e.Header {
		req.Header[name] = values
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := e.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("answered %s: %.200s", resp.Status, b)
	}
	r, err := parse(b)
	if err != nil {
		return nil, err
	}
	return r.Result, r.err()
}
