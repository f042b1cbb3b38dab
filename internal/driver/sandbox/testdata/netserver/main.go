// Command netserver is what tests of the network of a sandbox run inside: an HTTP
// server that says what it can reach.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const patience = 5 * time.Second

func main() {
	var count, streams atomic.Int64
	handle := func(path string, f func(w http.ResponseWriter, r *http.Request) (string, error)) {
		http.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			text, err := f(w, r)
			if err != nil {
				text = "error: " + err.Error()
			}
			io.WriteString(w, text)
		})
	}
	handle("/count", func(http.ResponseWriter, *http.Request) (string, error) {
		return fmt.Sprint(count.Add(1)), nil
	})
	handle("/streams", func(http.ResponseWriter, *http.Request) (string, error) {
		return fmt.Sprint(streams.Load()), nil
	})
	handle("/env", func(_ http.ResponseWriter, r *http.Request) (string, error) {
		return os.Getenv(r.FormValue("name")), nil
	})
	handle("/file", func(_ http.ResponseWriter, r *http.Request) (string, error) {
		b, err := os.ReadFile(r.FormValue("path"))
		return string(b), err
	})
	// What it is sent, so many times. It does not read for a while.
	handle("/echo", func(_ http.ResponseWriter, r *http.Request) (string, error) {
		time.Sleep(200 * time.Millisecond)
		times, err := strconv.Atoi(r.URL.Query().Get("times"))
		if err != nil {
			return "", err
		}
		b, err := io.ReadAll(r.Body)
		return strings.Repeat(string(b), times), err
	})
	handle("/slow", func(_ http.ResponseWriter, r *http.Request) (string, error) {
		wait, err := time.ParseDuration(r.FormValue("for"))
		time.Sleep(wait)
		return "slow", err
	})
	// Through the proxy that the environment names.
	handle("/get", func(_ http.ResponseWriter, r *http.Request) (string, error) {
		c := &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}, Timeout: patience}
		resp, err := c.Get(r.FormValue("url"))
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		return fmt.Sprintf("%d %s", resp.StatusCode, b), err
	})
	// Without it.
	handle("/dial", func(_ http.ResponseWriter, r *http.Request) (string, error) {
		c, err := net.DialTimeout("tcp", r.FormValue("addr"), patience)
		if err != nil {
			return "", err
		}
		return "connected", c.Close()
	})
	handle("/udp", func(_ http.ResponseWriter, r *http.Request) (string, error) {
		c, err := net.Dial("udp", r.FormValue("addr"))
		if err != nil {
			return "", err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		b := make([]byte, 100)
		if _, err := io.WriteString(c, "hello"); err != nil {
			return "", err
		}
		n, err := c.Read(b)
		return string(b[:n]), err
	})
	handle("/lookup", func(_ http.ResponseWriter, r *http.Request) (string, error) {
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		addrs, err := new(net.Resolver).LookupHost(ctx, r.FormValue("name"))
		return fmt.Sprint(addrs), err
	})
	http.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		streams.Add(1)
		defer streams.Add(-1)
		w.Header().Set("Content-Type", "text/event-stream")
		for {
			fmt.Fprintf(w, "data: %d\n\n", count.Load())
			w.(http.Flusher).Flush()
			select {
			case <-time.After(20 * time.Millisecond):
			case <-r.Context().Done():
				return
			}
		}
	})
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "nothing to listen at is given")
		os.Exit(3)
	}
	l, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(4)
	}
	fmt.Fprintln(os.Stderr, http.Serve(l, nil))
}
