package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"
)

// callTimeout bounds one request; nothing on loopback takes this long.
const callTimeout = 10 * time.Second

// maxReply bounds what is read of one reply.
const maxReply = 64 << 20

// A caller makes one call at a time and says whether the answer was right.
type caller interface {
	call(ctx context.Context, id uint64) error
	close()
}

// httpCaller is one client over one kept-alive connection. It uses net/http
// alone, so that what an MCP client library costs is not in the figures.
type httpCaller struct {
	url    string
	script *script
	client *http.Client
	header http.Header // of every call
	buf    bytes.Buffer
}

// dialHTTP makes a caller of the echo tool and, in the legacy era, its session.
func dialHTTP(ctx context.Context, era, url, tool, bearer string, payload int) (*httpCaller, error) {
	return dialScript(ctx, era, url, tool, bearer, newScript(era, tool, payload))
}

// dialScript makes a caller that follows a script.
func dialScript(ctx context.Context, era, url, tool, bearer string, s *script) (*httpCaller, error) {
	c := &httpCaller{
		url:    url,
		script: s,
		client: &http.Client{
			Timeout:   callTimeout,
			Transport: &http.Transport{MaxIdleConnsPerHost: 1, DisableCompression: true},
		},
		header: http.Header{
			"Content-Type":         {"application/json"},
			"Accept":               {"application/json, text/event-stream"},
			"Mcp-Protocol-Version": {era},
		},
	}
	if bearer != "" {
		c.header.Set("Authorization", "Bearer "+bearer)
	}
	if era == statelessEra {
		c.header.Set("Mcp-Method", "tools/call")
		c.header.Set("Mcp-Name", tool)
		return c, nil
	}
	if err := c.handshake(ctx); err != nil {
		c.close()
		return nil, fmt.Errorf("open a session at %s: %w", url, err)
	}
	return c, nil
}

func (c *httpCaller) handshake(ctx context.Context) error {
	res, err := c.post(ctx, []byte(initializeBody))
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("initialize: %s: %.300s", res.Status, c.buf.Bytes())
	}
	id := res.Header.Get("Mcp-Session-Id")
	if id == "" {
		return fmt.Errorf("initialize: the answer has no Mcp-Session-Id: %.300s", c.buf.Bytes())
	}
	c.header.Set("Mcp-Session-Id", id)
	res, err = c.post(ctx, []byte(initializedBody))
	if err != nil {
		return err
	}
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("notifications/initialized: %s: %.300s", res.Status, c.buf.Bytes())
	}
	return nil
}

func (c *httpCaller) call(ctx context.Context, id uint64) error {
	res, err := c.post(ctx, c.script.call(id))
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("call %d: %s: %.300s", id, res.Status, c.buf.Bytes())
	}
	switch kind := mediaType(res.Header.Get("Content-Type")); kind {
	case "application/json":
		return c.script.check(id, c.buf.Bytes())
	case "text/event-stream":
		return c.script.checkStream(id, c.buf.Bytes())
	default:
		return fmt.Errorf("call %d: content type %q is neither JSON nor an event stream", id, kind)
	}
}

// post sends one message and reads the reply to its end into c.buf; only then
// can the connection be used again.
func (c *httpCaller) post(ctx context.Context, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = c.header
	res, err := c.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	c.buf.Reset()
	if n, err := c.buf.ReadFrom(io.LimitReader(res.Body, maxReply)); err != nil || n == maxReply {
		return nil, fmt.Errorf("read the reply after %d bytes: %w", n, err)
	}
	return res, nil
}

// close ends the session, where there is one, and the connection.
func (c *httpCaller) close() {
	defer c.client.CloseIdleConnections()
	if c.header.Get("Mcp-Session-Id") == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, c.url, nil)
	if err != nil {
		return
	}
	req.Header = c.header
	// A server may refuse to end sessions; the figures are made by then.
	if res, err := c.client.Do(req); err == nil {
		res.Body.Close()
	}
}

func mediaType(header string) string {
	if header == "application/json" || header == "text/event-stream" {
		return header
	}
	kind, _, err := mime.ParseMediaType(header)
	if err != nil {
		return header
	}
	return kind
}
