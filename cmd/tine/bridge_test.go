package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"testing"
)

func TestNeverSent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + l.Addr().String()
	l.Close()
	resp, refused := http.Get(nobody)
	if refused == nil {
		resp.Body.Close()
		t.Fatal("somebody listens on a port that was just given back")
	}
	post := func(op string, err error) error {
		return &url.Error{Op: "Post", URL: nobody, Err: &net.OpError{Op: op, Net: "tcp", Err: err}}
	}
	for _, tt := range []struct {
		name string
		err  error
		want bool
	}{
		{"refused here", refused, true},
		{"refused on Windows", post("dial", os.NewSyscallError("connectex", errors.New("no connection could be made"))), true},
		{"broken while it was sent", post("write", os.NewSyscallError("write", errors.New("broken pipe"))), false},
		{"broken before the answer", &url.Error{Op: "Post", URL: nobody, Err: io.EOF}, false},
		{"a text that looks like one", errors.New("connect: connection refused"), false},
	} {
		if got := neverSent(tt.err); got != tt.want {
			t.Errorf("%s: %v is %v", tt.name, tt.err, got)
		}
	}
}
