package credential

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/oauth2"

	"github.com/tine-mcp/tine/api"
)

const (
	maxQuoted     = 200 // characters of what an endpoint said
	maxRetryAfter = 5 * time.Minute
)

// OAuth2 error codes that decide what is done.
const (
	codeInvalidGrant  = "invalid_grant"
	codeInvalidClient = "invalid_client"
	codeUnauthorized  = "unauthorized_client"
)

// A fault is why there is no token.
type fault struct {
	err   api.Error
	code  string        // the OAuth2 error code, where an endpoint sent one
	after time.Duration // how long to wait before another try
	local bool          // no endpoint was asked, so there is nothing to spare
}

// error is the fault as somebody hears of it who may try again after wait.
func (f *fault) error(wait time.Duration) *api.Error {
	e := f.err
	if e.Retryable && wait > 0 {
		e.RetryAfter = int((wait + time.Second - 1) / time.Second)
	}
	return &e
}

// faultOf is the fault of an error that is most often an *api.Error already.
func faultOf(set *Settings, err error) *fault {
	e := problem(api.KindInfrastructure, set.Server, true, "%v", err)
	_ = errors.As(err, &e)
	return &fault{err: *e}
}

// problem is an error about a server. One that is not retryable stays until a person
// changes something.
func problem(kind api.Kind, server string, retryable bool, format string, args ...any) *api.Error {
	return &api.Error{
		Kind: kind, Server: server, Retryable: retryable, Final: !retryable,
		Message: fmt.Sprintf("server %q: ", server) + fmt.Sprintf(format, args...),
	}
}

// wantsLogin is the fault of a login that is not there or no longer works. Where each
// principal has its own, that says nothing of the server.
func wantsLogin(set *Settings, why string) *fault {
	f := &fault{local: true, err: *problem(api.KindRefused, set.Server, false, "%s; %s", why, loginAdvice(set.Server))}
	f.err.Final = !set.PerPrincipal
	return f
}

func loginAdvice(server string) string { return "run: tine login " + server }

// endpointFault reads what x/oauth2 says of a failed token request. Its own
// texts are left behind: they hold the answer's body.
func endpointFault(set *Settings, endpoint string, c *client, err error, secrets ...string) *fault {
	name := "the token endpoint " + shown(endpoint)
	var answer *oauth2.RetrieveError
	if !errors.As(err, &answer) {
		text, again := unanswered(err, secrets...)
		if !again {
			text += "; " + cmp.Or(set.mend(err), "check servers."+set.Server+".auth.token_url")
		}
		return &fault{err: *problem(api.KindInfrastructure, set.Server, again, "%s %s", name, text)}
	}
	f := &fault{code: answer.ErrorCode, after: retryAfter(answer.Response)}
	said := quoted(answer.ErrorCode, answer.ErrorDescription, secrets...)
	status := 0
	if answer.Response != nil {
		status = answer.Response.StatusCode
	}
	switch {
	case status >= 500 || status == http.StatusTooManyRequests || f.code == "temporarily_unavailable" || f.code == "server_error":
		if said != "" {
			said = ": " + said
		}
		f.err = *problem(api.KindInfrastructure, set.Server, true, "%s answered HTTP %d%s", name, status, said)
	case f.code == codeInvalidClient || f.code == codeUnauthorized:
		f.err = *problem(api.KindRefused, set.Server, false,
			"%s refused the client: %s; check servers.%s.auth.%s", name, said, set.Server, c.keys(set))
	case f.code != "":
		f.err = *problem(api.KindRefused, set.Server, false, "%s refused: %s; check servers.%s.auth", name, said, set.Server)
	default:
		f.err = *problem(api.KindInfrastructure, set.Server, false,
			"%s answered HTTP %d; check servers.%s.auth.token_url", name, status, set.Server)
	}
	return f
}

// mend says what to do about a certificate that is not trusted; empty for other errors.
func (s *Settings) mend(err error) string {
	var certificate *tls.CertificateVerificationError
	if !errors.As(err, &certificate) {
		return ""
	}
	return "set servers." + s.Server + ".ca_file if its authority is one of yours"
}

// unanswered tells why a request got no answer that can be used, and whether another try
// may get one.
func unanswered(err error, secrets ...string) (text string, again bool) {
	var sent *url.Error // its text repeats the URL
	var strays *strayError
	switch {
	case errors.As(err, &strays):
		return scrub(strays.Error(), secrets...), false
	case errors.Is(err, context.DeadlineExceeded):
		return "did not answer in time", true
	case errors.As(err, &sent):
		if sent.Timeout() {
			return "did not answer in time", true
		}
		return "can't be reached: " + scrub(sent.Err.Error(), secrets...), !errors.As(err, new(*tls.CertificateVerificationError))
	case errors.Is(err, context.Canceled):
		return "was not waited for", true
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "broke off its answer", true
	}
	return "sent something that is no answer to the request", false
}

// quoted is an OAuth2 error as it may be shown.
func quoted(code, description string, secrets ...string) string {
	if description != "" && code != "" {
		code += ": "
	}
	return scrub(code+description, secrets...)
}

// scrub makes a text from outside fit to be shown: secrets masked, then cut, on
// one line.
func scrub(text string, secrets ...string) string {
	for _, s := range secrets {
		if s == "" {
			continue
		}
		for _, form := range []string{s, url.QueryEscape(s), url.PathEscape(s), base64.StdEncoding.EncodeToString([]byte(s))} {
			text = strings.ReplaceAll(text, form, "***")
		}
	}
	return cut(oneLine(text), maxQuoted)
}

func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r)
	}), " ")
}

func cut(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "..."
	}
	return text
}

// shown is a URL without what may be secret in it.
func shown(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "that is configured"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

func retryAfter(resp *http.Response) time.Duration {
	if resp == nil {
		return 0
	}
	seconds, err := strconv.Atoi(strings.TrimSpace(resp.Header.Get("Retry-After")))
	if err != nil || seconds <= 0 {
		return 0
	}
	return min(time.Duration(min(seconds, 1<<20))*time.Second, maxRetryAfter)
}
