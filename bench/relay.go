package main

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"
)

// bufferSize is that of httputil.ReverseProxy without a pool.
const bufferSize = 32 << 10

// peerTransport is what both relays send with: enough idle connections that no
// caller ever waits for a new one.
func peerTransport() *http.Transport {
	return &http.Transport{
		MaxIdleConns:        1024,
		MaxIdleConnsPerHost: 256,
		IdleConnTimeout:     5 * time.Minute,
		DisableCompression:  true,
	}
}

type bufferPool struct{ pool sync.Pool }

func newBufferPool() *bufferPool {
	return &bufferPool{sync.Pool{New: func() any { return new([bufferSize]byte) }}}
}

func (p *bufferPool) Get() []byte  { return p.pool.Get().(*[bufferSize]byte)[:] }
func (p *bufferPool) Put(b []byte) { p.pool.Put((*[bufferSize]byte)(b)) }

// reverseProxy is the standard library's proxy as someone would deploy it before
// MCP servers: pooled buffers, streams flushed at once.
//
// Full duplex is what keeps it right: without it net/http closes the incoming
// body at the first byte of the answer, and when that comes before the outgoing
// request has seen the body's end, the answer is cut off (golang/go#40747). An
// upstream on loopback is quick enough for that in one call of a hundred.
func reverseProxy(upstream string) (http.Handler, error) {
	u, err := url.Parse(upstream)
	if err != nil {
		return nil, fmt.Errorf("upstream URL: %w", err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(u) },
		Transport:     peerTransport(),
		FlushInterval: -1,
		BufferPool:    newBufferPool(),
		ErrorLog:      log.Default(),
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		proxy.ServeHTTP(w, r)
	}), nil
}

// bareRelay reads a request whole, posts it on and copies the answer. A gateway
// that looks into bodies can't do less: it is the floor under one.
func bareRelay(upstream string) (http.Handler, error) {
	base, err := url.Parse(upstream)
	if err != nil {
		return nil, fmt.Errorf("upstream URL: %w", err)
	}
	transport, buffers := peerTransport(), newBufferPool()
	return http.HandlerFunc(func(w http.ResponseWriter, in *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, in.Body, 16<<20))
		if err != nil {
			http.Error(w, "read the request: "+err.Error(), http.StatusBadRequest)
			return
		}
		u := *base
		u.Path = in.URL.Path
		out := (&http.Request{
			Method:        in.Method,
			URL:           &u,
			Header:        in.Header,
			Body:          io.NopCloser(bytes.NewReader(body)),
			ContentLength: int64(len(body)),
		}).WithContext(in.Context())
		if len(body) == 0 {
			out.Body = http.NoBody
		}
		res, err := transport.RoundTrip(out)
		if err != nil {
			http.Error(w, "reach the upstream: "+err.Error(), http.StatusBadGateway)
			return
		}
		defer res.Body.Close()
		maps.Copy(w.Header(), res.Header)
		w.WriteHeader(res.StatusCode)
		buf := buffers.Get()
		defer buffers.Put(buf)
		copyFlushed(w, res.Body, buf)
	}), nil
}

// copyFlushed passes each piece on as it comes; the last one goes out with the
// end of the answer.
func copyFlushed(w http.ResponseWriter, r io.Reader, buf []byte) {
	flush := http.NewResponseController(w)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
		if flush.Flush() != nil {
			return
		}
	}
}
