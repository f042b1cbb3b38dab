package credential

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/store/sqlite/sqlitetest"
	"github.com/tine-mcp/tine/internal/testkit"
)

// TestExpiredStorm has a thousand calls find the token expired.
func TestExpiredStorm(t *testing.T) {
	r := newRig(t)
	r.enroll(r.login(), "", "ann")
	rt := r.Wrap(r.login(), "", r.next)
	r.clock.Advance(2 * time.Hour)
	storm(t, r, rt, 200)
	if n := r.peer.counted("/token"); n != 2 {
		t.Errorf("%d token requests, want 2", n)
	}
	r.peer.forget()
	storm(t, r, rt, 200)
	if n := r.peer.counted("/token"); n != 3 {
		t.Errorf("%d token requests, want 3", n)
	}
}

func TestRestart(t *testing.T) {
	dir := t.TempDir()
	r := newRig(t)
	db := sqlitetest.Open(t, dir)
	r.open(db)
	r.enroll(r.login(), "", "ann")
	again := func() http.RoundTripper {
		r.Wallet.Close()
		db.Close()
		db = sqlitetest.Open(t, dir)
		r.open(db)
		return r.Wrap(r.login(), "", r.next)
	}
	defer func() { r.Wallet.Close(); db.Close() }()
	r.must(again(), "b", "ann:b")
	if n := r.peer.counted("/token"); n != 1 {
		t.Errorf("%d token requests: the token was not kept", n)
	}
	r.clock.Advance(2 * time.Hour)
	r.must(again(), "b", "ann:b") // renewed and rotated
	r.clock.Advance(2 * time.Hour)
	r.must(again(), "b", "ann:b") // with what was rotated
	if n := r.peer.counted("/token"); n != 3 {
		t.Errorf("%d token requests, want 3", n)
	}
	r.peer.do(func() { clear(r.peer.refresh) })
	r.clock.Advance(2 * time.Hour)
	_, _, err := r.call(again(), "b")
	refused(t, err, api.KindRefused, false, "")
	again()
	if state := r.State(context.Background(), r.login(), ""); state.LoggedIn || !strings.Contains(state.Reason, "invalid_grant") {
		t.Errorf("the end of the login was not kept: %+v", state)
	}
}

func TestRefusedRefresh(t *testing.T) {
	r := newRig(t)
	r.enroll(r.login(), "", "ann")
	rt := r.Wrap(r.login(), "", r.next)
	r.peer.do(func() { clear(r.peer.refresh) })
	r.clock.Advance(2 * time.Hour)
	for range 5 {
		_, _, err := r.call(rt, "b")
		e := refused(t, err, api.KindRefused, false, "its renewal was refused (invalid_grant); run: tine login x")
		if strings.Contains(e.Message, "refresh-") {
			t.Errorf("the message tells the token: %s", e.Message)
		}
	}
	if n := r.peer.counted("/token"); n != 2 {
		t.Errorf("%d token requests, want 2", n)
	}
	if data := r.shelf.data[account{"x", ""}].Data; bytes.Contains(data, []byte("access-")) || bytes.Contains(data, []byte("refresh-")) {
		t.Errorf("tokens of an ended login are kept: %s", data)
	}
	r.enroll(r.login(), "", "ann")
	r.must(rt, "b", "ann:b")
}

func TestRefreshEndpointDown(t *testing.T) {
	r := newRig(t)
	r.enroll(r.login(), "", "ann")
	rt := r.Wrap(r.login(), "", r.next)
	r.peer.do(func() {
		r.peer.token = func(w http.ResponseWriter, _ *http.Request) bool {
			http.Error(w, "down", http.StatusBadGateway)
			return true
		}
	})
	r.clock.Advance(2 * time.Hour)
	_, _, err := r.call(rt, "b")
	refused(t, err, api.KindInfrastructure, true, "HTTP 502")
	if state := r.State(context.Background(), r.login(), ""); !state.LoggedIn {
		t.Errorf("an endpoint that is down ended the login: %+v", state)
	}
	r.peer.do(func() { r.peer.token = nil })
	r.clock.Advance(maxPause)
	r.must(rt, "b", "ann:b")
}

// TestRotationIsKeptFirst has the store refuse a rotated token: it is not used
// before it is kept, and it is not lost.
func TestRotationIsKeptFirst(t *testing.T) {
	r := newRig(t)
	r.enroll(r.login(), "", "ann")
	rt := r.Wrap(r.login(), "", r.next)
	r.shelf.broken(errors.New("the disk is full"))

	r.clock.Advance(59*time.Minute + 30*time.Second) // the old one still works
	r.must(rt, "b", "ann:b")
	testkit.Eventually(t, "the renewal", func() bool { return strings.Contains(r.log.String(), "the disk is full") })
	r.must(rt, "b", "ann:b")
	for _, h := range r.peer.headers() {
		if h == "Bearer access-2" {
			t.Error("a token was used that is not kept")
		}
	}
	r.clock.Advance(time.Hour) // now it does not
	_, _, err := r.call(rt, "b")
	refused(t, err, api.KindInfrastructure, true, "could not be kept: the disk is full")
	if n := r.peer.counted("/token"); n != 2 {
		t.Errorf("%d token requests: what was renewed was dropped", n)
	}
	r.shelf.broken(nil)
	r.clock.Advance(maxPause)
	r.must(rt, "b", "ann:b")
	if state := r.State(context.Background(), r.login(), ""); !state.LoggedIn {
		t.Errorf("state %+v", state)
	}
}

// TestUnsavedAtTheEnd gives a rotated token one more chance when Tine stops.
func TestUnsavedAtTheEnd(t *testing.T) {
	r := newRig(t)
	r.enroll(r.login(), "", "ann")
	r.shelf.broken(errors.New("the disk is full"))
	r.clock.Advance(2 * time.Hour)
	if _, _, err := r.call(r.Wrap(r.login(), "", r.next), "b"); err == nil {
		t.Fatal("no error")
	}
	r.shelf.broken(nil)
	r.open(r.shelf)
	r.must(r.Wrap(r.login(), "", r.next), "b", "ann:b")
}

// TestUnrotatedNeedsNoStore goes on with a broken disk where nothing is lost.
func TestUnrotatedNeedsNoStore(t *testing.T) {
	r := newRig(t)
	r.peer.rotate = false
	r.enroll(r.login(), "", "ann")
	r.shelf.broken(errors.New("the disk is full"))
	r.clock.Advance(2 * time.Hour)
	r.must(r.Wrap(r.login(), "", r.next), "b", "ann:b")
}

func TestLoginThatCantBeKept(t *testing.T) {
	r := newRig(t)
	start, err := r.Begin(context.Background(), r.login(), "", here)
	if err != nil {
		t.Fatal(err)
	}
	r.shelf.broken(errors.New("the disk is full"))
	err = r.Finish(context.Background(), r.login(), start.Flow, "", r.visit(start, "ann"))
	refused(t, err, api.KindInfrastructure, true, "could not be kept")
	_, _, err = r.call(r.Wrap(r.login(), "", r.next), "b")
	refused(t, err, api.KindRefused, false, "nobody has logged in")
	refused(t, r.Logout(context.Background(), r.login(), ""), api.KindInfrastructure, true, "could not be forgotten")
}

func TestWithoutRefreshToken(t *testing.T) {
	r := newRig(t)
	r.peer.noRefresh = true
	r.enroll(r.login(), "", "ann")
	rt := r.Wrap(r.login(), "", r.next)
	r.must(rt, "b", "ann:b")
	good := map[string]string{}
	r.peer.do(func() {
		for k, v := range r.peer.access {
			good[k] = v
		}
		clear(r.peer.access)
	})
	_, _, err := r.call(rt, "b")
	refused(t, err, api.KindRefused, false, "the server refuses the login's token, which can't be renewed; run: tine login x")
	if state := r.State(context.Background(), r.login(), ""); state.LoggedIn || state.Reason == "" {
		t.Errorf("state %+v", state)
	}
	r.peer.do(func() { r.peer.access = good })
	r.must(rt, "b", "ann:b") // it was the server's mistake
	if state := r.State(context.Background(), r.login(), ""); !state.LoggedIn {
		t.Errorf("state %+v", state)
	}
	r.clock.Advance(2 * time.Hour)
	_, _, err = r.call(rt, "b")
	refused(t, err, api.KindRefused, false, "has expired and can't be renewed")
	if state := r.State(context.Background(), r.login(), ""); state.LoggedIn || !strings.Contains(state.Reason, "expired") {
		t.Errorf("state %+v", state)
	}
}

// TestLogoutDuringRefresh checks that a refresh that is under way does not bring
// back what was logged out.
func TestLogoutDuringRefresh(t *testing.T) {
	r := newRig(t)
	r.enroll(r.login(), "", "ann")
	rt := r.Wrap(r.login(), "", r.next)
	began, hold := make(chan struct{}), make(chan struct{})
	r.peer.do(func() {
		r.peer.token = func(http.ResponseWriter, *http.Request) bool { close(began); <-hold; return false }
	})
	r.clock.Advance(2 * time.Hour)
	got := make(chan error)
	go func() { _, _, err := r.call(rt, "b"); got <- err }()
	<-began
	if err := r.Logout(context.Background(), r.login(), ""); err != nil {
		t.Fatal(err)
	}
	close(hold)
	refused(t, <-got, api.KindRefused, false, "nobody has logged in")
	if len(r.shelf.data) != 0 {
		t.Error("the refresh brought the login back")
	}
}

// TestMovedServer checks that a login is not shown to what took its server's
// name.
func TestMovedServer(t *testing.T) {
	r := newRig(t)
	r.enroll(r.login(), "", "ann")
	other := newPeer(t)
	for name, change := range map[string]func(*Settings){
		"url":            func(s *Settings) { s.URL = other.URL + "/mcp" },
		"auth.client_id": func(s *Settings) { s.ClientID = "another" },
		"auth.token_url": func(s *Settings) { s.TokenURL = other.URL + "/token" },
	} {
		for _, restarted := range []bool{false, true} {
			if restarted {
				r.open(r.shelf)
			}
			s := r.login()
			change(&s)
			req, _ := http.NewRequest("POST", s.URL, strings.NewReader("b"))
			_, err := r.Wrap(s, "", r.next).RoundTrip(req)
			refused(t, err, api.KindRefused, false, "servers.x."+name+" has changed since the login; run: tine login x")
			if state := r.State(context.Background(), s, ""); state.LoggedIn || state.Reason == "" {
				t.Errorf("%s: state %+v", name, state)
			}
		}
	}
	if other.counted("/mcp")+other.counted("/token") != 0 {
		t.Error("something went to the other server")
	}
	r.must(r.Wrap(r.login(), "", r.next), "b", "ann:b")
}

func TestUnreadableRecord(t *testing.T) {
	r := newRig(t)
	r.enroll(r.login(), "", "ann")
	c := r.shelf.data[account{"x", ""}]
	c.Data = []byte(`{"access": 12, "refresh":"refresh-1"`)
	r.shelf.data[account{"x", ""}] = c
	r.open(r.shelf)
	_, _, err := r.call(r.Wrap(r.login(), "", r.next), "b")
	refused(t, err, api.KindRefused, false, "can't be read; run: tine login x")
	r.enroll(r.login(), "", "ann")
	r.must(r.Wrap(r.login(), "", r.next), "b", "ann:b")
}

// TestCloseLetsARefreshFinish checks that stopping in the middle of a rotation
// loses nothing.
func TestCloseLetsARefreshFinish(t *testing.T) {
	r := newRig(t)
	r.enroll(r.login(), "", "ann")
	rt := r.Wrap(r.login(), "", r.next)
	began, hold := make(chan struct{}), make(chan struct{})
	r.peer.do(func() {
		r.peer.token = func(http.ResponseWriter, *http.Request) bool { close(began); <-hold; return false }
	})
	r.clock.Advance(2 * time.Hour)
	got := make(chan error)
	go func() { _, _, err := r.call(rt, "b"); got <- err }()
	<-began
	closed := make(chan struct{})
	go func() { r.Wallet.Close(); close(closed) }()
	testkit.Eventually(t, "the end", func() bool { return r.life.Err() != nil })
	close(hold)
	<-closed
	if err := <-got; err != nil {
		t.Errorf("the call under way: %v", err)
	}
	r.peer.do(func() { r.peer.token = nil })
	r.open(r.shelf)
	r.must(r.Wrap(r.login(), "", r.next), "b", "ann:b")
	if n := r.peer.counted("/token"); n != 2 {
		t.Errorf("%d token requests, want 2", n)
	}
}
