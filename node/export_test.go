package node

import (
	"net/http"
	"net/url"
)

// SetProxy has a client of HTTP or SSE send all requests to a proxy.
func SetProxy(c *http.Client, proxy string) {
	u, _ := url.Parse(proxy)
	c.Transport.(*bearer).base.Proxy = http.ProxyURL(u)
}

var (
	AnswerOf = answerOf
	Resolved = resolved
)
