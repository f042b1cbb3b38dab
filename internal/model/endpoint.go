package model

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// An endpoint is where the models of a provider are asked.
type endpoint struct {
	base   *url.URL // its path ends with a slash
	model  string
	client *http.Client
	max    int64
}

// withoutRedirects is a client that follows none: Go sends headers such as x-api-key on
// to wherever a redirect points.
func withoutRedirects(from *http.Client) *http.Client {
	c := http.Client{}
	if from != nil {
		c = *from
	}
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &c
}

// maxProblem limits the body of an answer that is an error.
const maxProblem = 64 << 10

// post sends a request. It makes an error of every answer that is no success, and limits
// the size of the rest. The caller closes the body.
func (e *endpoint) post(ctx context.Context, path string, header http.Header, request any) (*http.Response, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	at, err := e.base.Parse(path)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = header
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "tine")
	resp, err := e.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < 300 {
		resp.Body = &limited{body: resp.Body, left: e.max, max: e.max}
		return resp, nil
	}
	defer resp.Body.Close()
	a := &answered{status: resp.StatusCode, after: retryAfter(resp.Header), final: resp.Header.Get("X-Should-Retry") == "false"}
	body, _ = io.ReadAll(io.LimitReader(resp.Body, maxProblem)) // the status says enough
	a.problem = readProblem(body)
	return nil, a
}

// An answered is the error of an endpoint that answered with one.
type answered struct {
	status  int
	problem problem
	after   time.Duration // what Retry-After says; zero for nothing
	final   bool          // the endpoint says that another attempt is useless
}

func (a *answered) Error() string { return fmt.Sprintf("HTTP status %d", a.status) }

// A problem is what an endpoint says of an error.
type problem struct {
	Type    string
	Code    string
	Message string
}

// readProblem reads the error of either provider: {"error":{"type","code","message"}}.
// Some compatible endpoints send only a text.
func readProblem(body []byte) problem {
	var all struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
	}
	if json.Unmarshal(body, &all) != nil {
		return problem{}
	}
	var p struct {
		Type    string          `json:"type"`
		Code    json.RawMessage `json:"code"` // a string, or a number
		Message string          `json:"message"`
	}
	if json.Unmarshal(all.Error, &p) != nil {
		json.Unmarshal(all.Error, &p.Message) // a text, or nothing that is known
	}
	got := problem{Type: p.Type, Message: p.Message}
	if json.Unmarshal(p.Code, &got.Code) != nil {
		got.Code = string(p.Code)
	}
	if got.Message == "" {
		got.Message = all.Message
	}
	return got
}

// retryAfter reads how long an endpoint wants to be left alone.
func retryAfter(h http.Header) time.Duration {
	const most = 24 * time.Hour
	for _, unit := range []struct {
		name string
		of   time.Duration
	}{{"Retry-After-Ms", time.Millisecond}, {"Retry-After", time.Second}} {
		value := h.Get(unit.name)
		if value == "" {
			continue
		}
		if n, err := strconv.ParseFloat(value, 64); err == nil && n > 0 {
			return time.Duration(min(n*float64(unit.of), float64(most)))
		}
		if at, err := http.ParseTime(value); err == nil {
			return min(max(time.Until(at), 0), most)
		}
	}
	return 0
}

// errTooLarge is the error of a reply that is larger than allowed.
type errTooLarge struct{ max int64 }

func (e *errTooLarge) Error() string { return fmt.Sprintf("larger than %d bytes", e.max) }

// errCut is the error of a stream that ends before the reply is complete.
var errCut = errors.New("the reply broke off")

// errStrange is the error of a reply that is not understood.
var errStrange = errors.New("the reply has an unknown form")

// limited is a body that fails when it is larger than allowed. A connection that breaks
// is told from a body that ends within a line or a value.
type limited struct {
	body      io.ReadCloser
	left, max int64
}

func (l *limited) Read(p []byte) (int, error) {
	var one [1]byte
	full := l.left <= 0 // the body may be just as large as allowed
	if full {
		p = one[:]
	} else if int64(len(p)) > l.left {
		p = p[:l.left]
	}
	n, err := l.body.Read(p)
	if full && n > 0 {
		return 0, &errTooLarge{l.max}
	}
	l.left -= int64(n)
	if err == io.ErrUnexpectedEOF {
		err = errCut
	}
	return n, err
}

func (l *limited) Close() error { return l.body.Close() }
