package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/tine-mcp/tine/api"
)

// maxErrorBody bounds the body of a refusal.
const maxErrorBody = 1 << 20

// A request is one to the API. The path is given in elements, each of which may
// hold any character.
type request struct {
	method string
	query  url.Values
	in     any       // the body, as JSON
	upload io.Reader // or as it is
	media  string    // of upload; bytes unless it is given
	key    string    // of idempotency
	accept string
	path   []string
}

// do sends one request and decodes its answer into out, or drops the answer
// where out is nil.
func (c *Client) do(ctx context.Context, method string, q url.Values, in, out any, path ...string) error {
	return c.exchange(ctx, request{method: method, query: q, in: in, path: path}, out)
}

func (c *Client) exchange(ctx context.Context, r request, out any) error {
	what := r.method + " " + c.at(r.path).Redacted()
	r.accept = "application/json"
	resp, err := c.send(ctx, r, out)
	if err != nil || resp == nil {
		return err
	}
	defer resp.Body.Close()
	raw, err := readBounded(resp.Body, c.maxBody)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("%s: read the answer: %w", what, err)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return fmt.Errorf("%s: the answer is not that of Tine's control API (%w); check the URL", what, err)
	}
	return nil
}

// send sends one request and returns a successful answer, its body still to be
// read. The answer is nil if a refusal was decoded into out.
func (c *Client) send(ctx context.Context, r request, out any) (*http.Response, error) {
	target := c.at(r.path)
	what := r.method + " " + target.Redacted()
	target.RawQuery = r.query.Encode()

	body, media := r.upload, cmp.Or(r.media, "application/octet-stream")
	if r.in != nil {
		b, err := encode(r.in)
		if err != nil {
			return nil, fmt.Errorf("%s: encode the request: %w", what, err)
		}
		body, media = bytes.NewReader(b), "application/json"
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target.String(), body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	req.Header.Set("Accept", r.accept)
	if body != nil {
		req.Header.Set("Content-Type", media)
	}
	if r.key != "" {
		req.Header.Set("Idempotency-Key", r.key)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}

	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(ctx, r, err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		defer resp.Body.Close()
		return nil, c.refusal(what, resp, out)
	}
	return resp, nil
}

// at returns the address of an API path below the base.
func (c *Client) at(path []string) *url.URL {
	u := *c.base
	plain, escaped := strings.TrimRight(u.Path, "/"), strings.TrimRight(u.EscapedPath(), "/")
	for _, p := range path {
		plain += "/" + p
		escaped += "/" + escapeElement(p)
	}
	u.Path, u.RawPath = plain, escaped
	return &u
}

// escapeElement escapes one path element. Dots are escaped as well where they
// would make the path climb.
func escapeElement(p string) string {
	if p == "." || p == ".." {
		return strings.ReplaceAll(p, ".", "%2E")
	}
	return url.PathEscape(p)
}

// encode is json.Marshal without the escapes for HTML, so that arguments travel
// as they were written.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// refusal makes the error of an answer outside 2xx.
func (c *Client) refusal(what string, resp *http.Response, out any) error {
	raw, _ := readBounded(resp.Body, maxErrorBody) // an unreadable body counts as none
	var e api.Error
	if json.Unmarshal(raw, &e) == nil && e.Kind != "" && e.Message != "" {
		e.Status = resp.StatusCode
		return &e
	}
	if h, ok := out.(*api.Health); ok && resp.StatusCode == http.StatusServiceUnavailable {
		if json.Unmarshal(raw, h) == nil && h.Status != "" {
			return nil
		}
	}
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return &api.Error{Kind: api.KindRefused, Status: resp.StatusCode, Message: fmt.Sprintf("%s: answered %s; give a token that the gateway knows", what, resp.Status)}
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return &api.Error{Kind: api.KindRefused, Status: resp.StatusCode, Retryable: true, Message: fmt.Sprintf("%s: answered %s; try again later", what, resp.Status)}
	}
	if to := resp.Header.Get("Location"); to != "" && resp.StatusCode < 400 {
		return fmt.Errorf("%s: answered %s to %s, and Tine's control API never redirects; check the URL", what, resp.Status, to)
	}
	return fmt.Errorf("%s: answered %s, which does not look like Tine's control API; check the URL", what, resp.Status)
}

// unreachable wraps the reason why a request got no answer.
func (c *Client) unreachable(ctx context.Context, r request, err error) error {
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err // the url.Error repeats method and address
	}
	at := c.URL()
	if ctx.Err() != nil {
		cause := context.Cause(ctx)
		if errors.Is(cause, context.DeadlineExceeded) {
			return fmt.Errorf("no answer from %s in time: %w", at, cause)
		}
		return fmt.Errorf("request to %s: %w", at, cause)
	}
	var (
		dns  *net.DNSError
		cert *tls.CertificateVerificationError
		op   *net.OpError
	)
	switch {
	case errors.As(err, &cert):
		return fmt.Errorf("the certificate of %s is not trusted: %w; set SSL_CERT_FILE to the certificate of its authority", at, err)
	case errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Errorf("%s does not speak TLS: %w; write http:// in the URL", at, err)
	case errors.As(err, &dns):
		return fmt.Errorf("%w at %s: %w; check the URL", ErrNoGateway, at, err)
	case errors.As(err, &op) && op.Op == "dial":
		return fmt.Errorf("%w at %s: %w; is `tine serve` running? start it, or set --url or TINE_URL", ErrNoGateway, at, err)
	}
	if r.key != "" {
		return fmt.Errorf("request to %s broke off: %w; repeat it with the same idempotency key", at, err)
	}
	if r.method != http.MethodGet {
		return fmt.Errorf("request to %s broke off: %w; whether it was carried out is unknown: look before you repeat it", at, err)
	}
	return fmt.Errorf("request to %s broke off: %w; is `tine serve` still running?", at, err)
}

// readBounded reads r to its end and fails when that is past max bytes.
func readBounded(r io.Reader, max int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, max+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > max {
		return nil, fmt.Errorf("it is larger than the limit of %d bytes", max)
	}
	return b, nil
}
