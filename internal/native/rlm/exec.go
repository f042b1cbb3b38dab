package rlm

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/wire"
)

// ran is what a kernel says of code that has run.
type ran struct {
	Interrupted bool    `json:"interrupted"`
	Error       *string `json:"error"`
	Value       *string `json:"value"`
	Printed     int     `json:"printed"` // bytes
	Lost        int     `json:"lost"`    // bytes of them that are nowhere
	Changed     bool    `json:"changed"` // there is something new to save
	Unnoted     *string `json:"unnoted"` // why the names of what changed are not written down
	Tail        string  `json:"tail"`    // the end of an output that was not sent whole
	Images      []struct {
		MIME string `json:"mime"`
		Data string `json:"data"`
	} `json:"images"`
}

// printed collects what code prints.
type printed struct {
	mu       sync.Mutex
	out, err strings.Builder
	fresh    string // what no progress has told of yet
}

// freshest is how much of an output one message of progress has.
const freshest = 2000

func (p *printed) add(text string, isErr bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if isErr {
		p.err.WriteString(text)
	} else {
		p.out.WriteString(text)
	}
	if p.fresh += text; len(p.fresh) > freshest {
		p.fresh = strings.ToValidUTF8(p.fresh[len(p.fresh)-freshest:], "")
	}
}

func (p *printed) take() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := p.fresh
	p.fresh = ""
	return text
}

func (s *server) exec(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var in struct {
		Code    string   `json:"code"`
		Timeout *float64 `json:"timeout"`
	}
	if err := arguments(req, &in); err != nil {
		return nil, err
	}
	timeout := defaultTimeout
	if in.Timeout != nil {
		if !(*in.Timeout > 0 && *in.Timeout <= mostTimeout.Seconds()) {
			return nil, invalid("timeout must be above 0 and at most %.0f seconds", mostTimeout.Seconds())
		}
		timeout = time.Duration(*in.Timeout * float64(time.Second))
	}
	var out printed
	defer s.progress(ctx, req, &out)()
	done, err := s.do(ctx, timeout, map[string]any{"op": "exec", "code": in.Code}, out.add)
	var lost *api.Error
	var r ran
	switch {
	case ctx.Err() != nil:
		s.changed() // what it did by then
		return nil, err
	case errors.Is(err, errEnded):
		return nil, err
	case errors.As(err, &lost):
		res := failure(err)
		if before := shown(&out, r, s.set.Output); before != "" {
			res.Content = append([]mcp.Content{&mcp.TextContent{Text: before}}, res.Content...)
		}
		return res, nil
	case done == nil:
		return nil, err
	}
	if wrong := json.Unmarshal(done, &r); wrong != nil {
		return nil, fmt.Errorf("the kernel's answer can't be read: %w", wrong)
	}
	if r.Changed {
		s.changed()
	}
	res := text(shown(&out, r, s.set.Output))
	body := res.Content[0].(*mcp.TextContent)
	switch {
	case r.Interrupted && errors.Is(err, context.DeadlineExceeded):
		e := &api.Error{Kind: api.KindTimeout, Server: s.env.Server, Message: fmt.Sprintf("The code ran longer than %s and was interrupted; variables are kept.", timeout)}
		res.IsError, res.Meta = true, mcp.Meta{wire.MetaTineError: e}
		body.Text = joined(body.Text, "[timeout] "+e.Message)
	case errors.Is(err, context.DeadlineExceeded) && r.Error == nil:
		body.Text = joined(body.Text, fmt.Sprintf("[timeout] The code ran longer than %s, paid no heed to the interrupt and came to its end.", timeout))
	case r.Interrupted:
		res.IsError = true
		body.Text = joined(body.Text, "The code was interrupted; variables are kept.")
	case r.Error != nil:
		res.IsError = true
		body.Text = joined(body.Text, cut(*r.Error, s.set.Output, ""), s.lacking(*r.Error))
	case body.Text == "":
		body.Text = "(no output)"
	}
	if r.Unnoted != nil {
		body.Text = joined(body.Text, fmt.Sprintf("[warning] The names of changed variables can't be written to the session's state (%s). If the kernel ends now, these variables are lost without being named; make room, or mend the state folder.", *r.Unnoted))
	}
	for _, image := range r.Images {
		data, err := base64.StdEncoding.DecodeString(image.Data)
		if err != nil {
			return nil, fmt.Errorf("the kernel's image can't be read: %w", err)
		}
		res.Content = append(res.Content, &mcp.ImageContent{MIMEType: image.MIME, Data: data})
	}
	return res, nil
}

// noModule is the error of an import.
var noModule = regexp.MustCompile(`(?m)^ModuleNotFoundError: No module named '([^'.]+)`)

// lacking says how a package that code wants comes into the kernel.
func (s *server) lacking(trace string) string {
	m := noModule.FindStringSubmatch(trace)
	if m == nil {
		return ""
	}
	return fmt.Sprintf("[hint] The kernel can't install %s, as it has no network. Who set it up can: %s, or use a Python or an image that has it.", m[1], s.add("packages", m[1]))
}

// shown is what code printed and its value, cut to so many characters each.
func shown(out *printed, r ran, most int) string {
	out.mu.Lock()
	stdout, stderr := out.out.String(), out.err.String()
	out.mu.Unlock()
	mend := "the variable _output has all: rlm_get(name=\"_output\", query=\"_output[:1000]\")"
	if r.Lost > 0 {
		mend = fmt.Sprintf("the variable _output has all but the last %d bytes", r.Lost)
	}
	sent := len(stdout) + len(stderr)
	if r.Tail != "" && r.Printed > sent {
		// The middle was not sent: what comes is its beginning and its end.
		stdout = around(stdout+stderr, r.Tail, most, fmt.Sprintf("%d bytes in all; %s", r.Printed, mend))
		stderr = ""
	} else {
		stdout = cut(stdout, most, mend)
	}
	parts := []string{strings.TrimSuffix(stdout, "\n")}
	if r.Value != nil {
		parts = append(parts, cut(*r.Value, most, "the variable _ has all"))
	}
	if stderr != "" {
		parts = append(parts, "[stderr] "+cut(strings.TrimSuffix(stderr, "\n"), most, mend))
	}
	return joined(parts...)
}

// joined has each of the texts that are not empty on lines of its own.
func joined(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		if p == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(p)
	}
	return b.String()
}

// weight is how much of a caller's context a text takes, in characters of English.
func weight(s string) int {
	n := len(s)
	if n == utf8.RuneCountInString(s) {
		return n
	}
	n = 0
	for _, r := range s {
		n += runeWeight(r)
	}
	return n
}

func runeWeight(r rune) int {
	if r < utf8.RuneSelf {
		return 1
	}
	return 3
}

// cut is a text that is not too long, or its beginning and its end with a note.
func cut(text string, most int, mend string) string {
	return cutOf(text, utf8.RuneCountInString(text), most, mend)
}

// cutOf is the same for a text of which there are so many characters in all.
func cutOf(text string, all, most int, mend string) string {
	if weight(text) <= most {
		return text
	}
	note := fmt.Sprintf("%d characters in all", all)
	if mend != "" {
		note += "; " + mend
	}
	return around(text, text, most, note)
}

// around is the beginning of one text and the end of another.
func around(head, tail string, most int, note string) string {
	half := most / 2
	n := 0
	for i, r := range head {
		if n += runeWeight(r); n > half {
			head = head[:i]
			break
		}
	}
	n = 0
	for i := len(tail); i > 0; {
		r, size := utf8.DecodeLastRuneInString(tail[:i])
		if n += runeWeight(r); n > half {
			tail = tail[i:]
			break
		}
		i -= size
	}
	return fmt.Sprintf("%s\n[... cut: %s ...]\n%s", head, note, tail)
}

// Progress is told as often as there is something new, and otherwise often enough that
// a client that waits for signs of life goes on waiting.
const (
	progressEvery = 250 * time.Millisecond
	aliveEvery    = 10 * time.Second
)

// progress tells a caller that wants to know what is printed, until stop is called.
func (s *server) progress(ctx context.Context, req *mcp.CallToolRequest, out *printed) (stop func()) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		began, last, n := time.Now(), time.Now(), 0.0
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			text := ""
			if out != nil {
				text = out.take()
			}
			if text == "" {
				if time.Since(last) < aliveEvery {
					continue
				}
				text = fmt.Sprintf("running for %s", time.Since(began).Round(time.Second))
			}
			last = time.Now()
			n++
			if req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: n, Message: text}) != nil {
				return
			}
		}
	}()
	return func() {
		cancel()
		<-over
	}
}
