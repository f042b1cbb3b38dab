package upstream

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/tine-mcp/tine/api"
)

// statusError is an HTTP answer that is no MCP answer.
type statusError struct {
	code       int
	text       string // the beginning of the body
	retryAfter string
	stale      bool   // the server does not know the session that we sent
	elsewhere  string // where it redirects to, which was not followed; empty without
}

func (e *statusError) Error() string {
	msg := fmt.Sprintf("HTTP %d %s", e.code, http.StatusText(e.code))
	if e.text != "" {
		msg += ": " + e.text
	}
	return msg
}

// refusal explains an HTTP status to the caller.
func refusal(c *Conn, e *statusError) error {
	server := c.server
	switch {
	case e.elsewhere != "":
		err := failure(api.KindInfrastructure, server, false, "%v: it redirects to %s; %s", e, e.elsewhere, c.mend.Moved)
		err.Status = e.code
		return err
	case e.code == http.StatusUnauthorized || e.code == http.StatusForbidden:
		return failure(api.KindRefused, server, false, "%v; %s", e, c.mend.Locked)
	case e.code == http.StatusTooManyRequests:
		err := failure(api.KindRefused, server, true, "%v", e)
		err.Status = e.code
		if err.RetryAfter = retryAfter(e.retryAfter, time.Now()); err.RetryAfter > 0 {
			err.Message += fmt.Sprintf("; retry after %d s", err.RetryAfter)
		}
		return err
	case e.code >= 500:
		err := failure(api.KindInfrastructure, server, true, "%v", e)
		if e.code == http.StatusServiceUnavailable {
			err.RetryAfter = retryAfter(e.retryAfter, time.Now())
		}
		return err
	}
	err := failure(api.KindInfrastructure, server, false, "%v", e)
	err.Status = e.code
	return err
}

// maxRetryAfter bounds what a server may ask for in seconds.
const maxRetryAfter = 24 * 60 * 60

// retryAfter reads the header, which holds seconds or a date, as seconds.
func retryAfter(header string, now time.Time) int {
	header = strings.TrimSpace(header)
	if n, err := strconv.Atoi(header); err == nil {
		return min(max(n, 0), maxRetryAfter)
	}
	at, err := http.ParseTime(header)
	if err != nil {
		return 0
	}
	return min(max(int(math.Ceil(at.Sub(now).Seconds())), 0), maxRetryAfter)
}

// A mask hides secrets in a text; nil hides nothing.
type mask func(string) string

// excerpt makes the beginning of an unexpected body fit an error message. Servers
// repeat what they were sent, so it is masked, and before it is cut: half a secret
// would not be found.
func (m mask) excerpt(b []byte) string {
	s := strings.Join(strings.Fields(strings.ToValidUTF8(string(b[:min(len(b), 16<<10)]), "?")), " ")
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
	if m != nil {
		s = m(s)
	}
	if len(s) > 200 {
		cut := 200
		for s[cut]&0xC0 == 0x80 { // not inside of a character
			cut--
		}
		s = s[:cut] + "..."
	}
	return s
}
