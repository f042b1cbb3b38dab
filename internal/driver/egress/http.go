package egress

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"time"

	"github.com/tine-mcp/tine/internal/telemetry"
)

// unusedFor is how long a connection waits for the next request to its host. It is
// reported only after that.
const unusedFor = 3 * time.Second

// serveHTTP makes what serves HTTP clients. There is nothing to run: each
// connection is handed to it.
func (p *Proxy) serveHTTP() {
	quiet := slog.NewLogLogger(p.log.Handler(), slog.LevelDebug)
	p.transport = &http.Transport{
		DialContext:            p.dialHTTP,
		DisableCompression:     true, // what comes is passed on as it is
		MaxIdleConnsPerHost:    8,
		MaxIdleConns:           32,
		IdleConnTimeout:        unusedFor,
		ExpectContinueTimeout:  5 * time.Second,
		MaxResponseHeaderBytes: int64(p.o.HeaderLimit),
	}
	forward := &httputil.ReverseProxy{
		Rewrite:       rewrite,
		Transport:     p.transport,
		FlushInterval: -1,
		BufferPool:    copyBuffers{},
		ErrorLog:      quiet,
		ErrorHandler:  p.failed,
	}
	p.web = &http.Server{
		ReadHeaderTimeout: p.o.HeaderTimeout,
		IdleTimeout:       p.o.KeepAlive,
		MaxHeaderBytes:    p.o.HeaderLimit,
		ErrorLog:          quiet,

		DisableGeneralOptionsHandler: true,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !p.enter() {
				panic(http.ErrAbortHandler)
			}
			defer p.running.Done()
			defer func() {
				if v := recover(); v != nil {
					if v != http.ErrAbortHandler {
						_ = telemetry.Panicked(p.log, telemetry.InEgress, p.o.Server, v)
					}
					panic(http.ErrAbortHandler)
				}
			}()
			if r.Method == http.MethodConnect {
				p.connect(w, r)
				return
			}
			p.forward(forward, w, r)
		}),
	}
}

// connect answers CONNECT host:port with a tunnel.
func (p *Proxy) connect(w http.ResponseWriter, r *http.Request) {
	host, port, err := net.SplitHostPort(r.RequestURI)
	if err != nil {
		say(w, http.StatusBadRequest, "CONNECT wants a host and a port, as in example.org:443")
		return
	}
	t, f := p.parseTarget(host, port)
	if f != nil {
		say(w, f.status, f.text)
		return
	}
	// The request's own context ends when the client has sent all it has to send.
	l, f := p.reach(p.ctx, t)
	if f != nil {
		say(w, f.status, f.text)
		return
	}
	defer l.Close()
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	c, ok := conn.(*client)
	if !ok {
		_ = conn.Close()
		return
	}
	early, _ := buffered.Reader.Peek(buffered.Reader.Buffered())
	if _, err := c.Write([]byte("HTTP/1.1 200 Connection established\r\n\r\n")); err != nil {
		_ = c.Close()
		return
	}
	p.tunnel(c, early, l, t)
}

// forward sends a request for an http:// URL on.
func (p *Proxy) forward(to http.Handler, w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Host == "":
		say(w, http.StatusBadRequest, "this is the proxy of a sandbox; it wants CONNECT, or a whole http:// URL")
		return
	case r.URL.Scheme != "http":
		say(w, http.StatusBadRequest, "the proxy of a sandbox does not speak "+clip(r.URL.Scheme)+" for others; use CONNECT")
		return
	}
	port := r.URL.Port()
	if port == "" {
		port = "80"
	}
	t, f := p.parseTarget(r.URL.Hostname(), port)
	if f != nil {
		say(w, f.status, f.text)
		return
	}
	// Before an existing connection is used, which looks up no name.
	if f := p.named(t); f != nil {
		p.report(t, time.Now(), f)
		say(w, f.status, f.text)
		return
	}
	// The Host that goes out is the judged one's, too.
	r.URL.Host = t.String()
	r.Host = strings.TrimSuffix(r.URL.Host, ":80")
	// An answer may begin before the request has ended.
	_ = http.NewResponseController(w).EnableFullDuplex()
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &patient{r.Body, http.NewResponseController(w), p.o.Idle}
	}
	to.ServeHTTP(w, r)
}

// rewrite makes the request that is sent on: to the host that was judged, with
// that host's name, and with what the client wrote otherwise.
func rewrite(r *httputil.ProxyRequest) {
	r.Out.URL.User = nil
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if v, ok := r.In.Header[name]; ok {
			r.Out.Header[name] = v
		}
	}
}

// dialHTTP is how requests get a connection.
func (p *Proxy) dialHTTP(ctx context.Context, _, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	t, f := p.parseTarget(host, port)
	if f != nil {
		return nil, f
	}
	l, f := p.reach(ctx, t)
	if f != nil {
		return nil, f
	}
	l.protocol(ProtocolHTTP)
	return l, nil
}

// failed answers a request that could not be sent on.
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	if r.ContentLength != 0 {
		w.Header().Set("Connection", "close") // what is left of the body may never come
	}
	var f *failure
	if errors.As(err, &f) {
		say(w, f.status, f.text)
		return
	}
	p.log.Debug("a request of a sandbox failed", "host", clip(r.URL.Host), "err", err)
	say(w, http.StatusBadGateway, clip(r.URL.Host)+" ended the connection before it answered")
}

// say answers for ourselves.
func say(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "tine: "+text+"\n")
}

// A patient body waits for its client, but not for ever.
type patient struct {
	io.ReadCloser
	control *http.ResponseController
	idle    time.Duration
}

// Read implements io.Reader.
func (b *patient) Read(to []byte) (int, error) {
	_ = b.control.SetReadDeadline(time.Now().Add(b.idle))
	n, err := b.ReadCloser.Read(to)
	if err == io.EOF {
		// From here on the server reads only to see that the client is still there.
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}
