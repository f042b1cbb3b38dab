package fetch

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/temoto/robotstxt"
)

// maxRobots is how much of a robots.txt counts; RFC 9309 asks for 500 KiB.
const maxRobots = 512 << 10

// refusal is a site's own no to being read by a program.
type refusal struct{ reason string }

func (r *refusal) Error() string { return r.reason }

// robotsAllow asks the robots.txt of a URL's host whether agent may get it. A file
// that does not exist allows everything; one that is refused, or whose server fails,
// allows nothing.
func (g *getter) robotsAllow(ctx context.Context, client *http.Client, u *url.URL, agent string) error {
	at := &url.URL{Scheme: u.Scheme, Host: u.Host, Path: "/robots.txt"}
	asking := *client
	asking.CheckRedirect = func(_ *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects {
			return fmt.Errorf("it redirects more than %d times", maxRedirects)
		}
		return nil
	}
	r, err := load(ctx, &asking, at, agent, maxRobots)
	if err != nil {
		return fmt.Errorf("asking %s whether the page may be read: %w", at, g.explain(at, err))
	}
	const byHand = "A person can still get the page with the fetch prompt."
	switch {
	case r.status == http.StatusUnauthorized || r.status == http.StatusForbidden:
		return &refusal{fmt.Sprintf("%s answered with status %d, which is taken as a no to programs that read the site. %s", at, r.status, byHand)}
	case r.status >= 500:
		return &refusal{fmt.Sprintf("%s answered with status %d, so it is unknown whether programs may read the site. Try later. %s", at, r.status, byHand)}
	case r.status >= 300:
		return nil
	}
	rules, err := robotstxt.FromBytes(directives(r.body))
	if err != nil {
		return &refusal{fmt.Sprintf("%s can't be understood (%v), so it is unknown whether programs may read the page. %s", at, err, byHand)}
	}
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	if u.RawQuery != "" {
		path += "?" + u.RawQuery
	}
	if !rules.TestAgent(path, agent) {
		return &refusal{fmt.Sprintf("%s does not allow programs to read this page.\n<useragent>%s</useragent>\n<url>%s</url>\n<robots>\n%s\n</robots>\nTell the user that the page could not be read, and why. %s",
			at, agent, u, excerpt(r.body), byHand)}
	}
	return nil
}

// directives leaves of a robots.txt what decides: the parser gives up on a
// whole file over one line that is out of place, and such files are common.
func directives(body []byte) []byte {
	var out bytes.Buffer
	inGroup := false
	lines := bufio.NewScanner(bytes.NewReader(bytes.ReplaceAll(bytes.TrimPrefix(body, []byte("\xef\xbb\xbf")), []byte("\r"), []byte("\n"))))
	lines.Buffer(nil, maxRobots+1)
	for lines.Scan() {
		line, _, _ := strings.Cut(lines.Text(), "#")
		key, value, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		key, value = strings.ToLower(strings.TrimSpace(key)), strings.TrimSpace(value)
		switch {
		case key == "user-agent":
			inGroup = true
		case key != "allow" && key != "disallow" || !inGroup:
			continue
		}
		// A value ends at a space; what follows would be read as a directive.
		value, _, _ = strings.Cut(value, " ")
		fmt.Fprintf(&out, "%s: %s\n", key, value)
	}
	return out.Bytes()
}

// excerpt keeps a refusal readable where a site lists thousands of rules.
func excerpt(body []byte) string {
	const most = 2000
	s := strings.ToValidUTF8(string(body), "�")
	if cut := runeOffset(s, most); cut < len(s) {
		return s[:cut] + "\n..."
	}
	return s
}
