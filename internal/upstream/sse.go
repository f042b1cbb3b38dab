package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"

	"bytes"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/wire"
)

// sseStream is the HTTP transport of revision 2024-11-05 as a stream of
// frames: one GET carries all that comes in, each message out is a POST to the
// address that the stream names first.
type sseStream struct {
	mask   mask
	ep     *driver.Endpoint
	post   string
	body   io.ReadCloser
	events *wire.EventReader
	life   context.Context
	end    context.CancelFunc
	once   sync.Once
}

func dialSSE(ctx context.Context, ep *driver.Endpoint, limit int, m mask) (*sseStream, error) {
	s := &sseStream{ep: ep, mask: m}
	s.life, s.end = context.WithCancel(context.Background())
	// The dial is bounded by ctx, the stream's life is not.
	stop := context.AfterFunc(ctx, s.end)
	req, err := http.NewRequestWithContext(s.life, http.MethodGet, ep.URL, nil)
	if err != nil {
		s.end()
		return nil, err
	}
	for name, values := range ep.Header {
		req.Header[name] = values
	}
	req.Header["Accept"] = headerEvents
	resp, err := ep.Client.Do(req)
	if err != nil {
		s.end()
		return nil, fmt.Errorf("can't be reached: %w", stripURL(err))
	}
	s.body = resp.Body
	if resp.StatusCode != http.StatusOK {
		body, _ := readBody(resp, 4<<10)
		s.Close()
		return nil, &statusError{code: resp.StatusCode, text: s.mask.excerpt(body)}
	}
	s.events = wire.NewEventReader(resp.Body, limit)
	for {
		ev, err := s.events.Next()
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("the event stream named no endpoint: %w", err)
		}
		if ev.Name != "endpoint" {
			continue
		}
		if s.post, err = sameOrigin(ep.URL, string(ev.Data)); err != nil {
			s.Close()
			return nil, err
		}
		break
	}
	if !stop() {
		s.Close()
		return nil, context.Cause(ctx)
	}
	return s, nil
}

// sameOrigin resolves the endpoint a server names. It must be on the same
// host, or a server could have our credentials sent elsewhere.
func sameOrigin(base, ref string) (string, error) {
	b, err := url.Parse(base)
	if err != nil {
		return "", err
	}
	u, err := b.Parse(ref)
	if err != nil {
		return "", fmt.Errorf("the event stream named an unreadable endpoint: %w", err)
	}
	if u.Scheme != b.Scheme || u.Host != b.Host {
		return "", fmt.Errorf("the event stream named an endpoint on another host, %s", u.Host)
	}
	return u.String(), nil
}

func (s *sseStream) ReadFrame() ([]byte, error) {
	for {
		ev, err := s.events.Next()
		if err != nil {
			return nil, err
		}
		if len(ev.Data) > 0 && (ev.Name == "" || ev.Name == "message") {
			return bytes.Clone(ev.Data), nil
		}
	}
}

func (s *sseStream) WriteFrame(ctx context.Context, frame []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.post, bytes.NewReader(frame))
	if err != nil {
		return err
	}
	for name, values := range s.ep.Header {
		req.Header[name] = values
	}
	req.Header["Content-Type"] = headerJSON
	resp, err := post(s.ep, req, s.mask)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var status *statusError
		if errors.As(err, &status) {
			return err
		}
		return fmt.Errorf("connection broke: %w", stripURL(err))
	}
	defer resp.Body.Close()
	body, _ := readBody(resp, 4<<10)
	if resp.StatusCode >= 300 {
		return &statusError{code: resp.StatusCode, text: s.mask.excerpt(body), retryAfter: resp.Header.Get("Retry-After")}
	}
	return nil
}

func (s *sseStream) Close() error {
	var err error
	s.once.Do(func() {
		s.end()
		if s.body != nil {
			err = s.body.Close()
		}
	})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
