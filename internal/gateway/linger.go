package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tine-mcp/tine/api"
)

const (
	// lingerFor is how long a request that is too large is still read, and
	// lingerPause how long its client may pause meanwhile. Over HTTP/2 the answer
	// ends with the request, and a client that stops sending must not wait for it.
	lingerFor    = 30 * time.Second
	lingerPause  = 5 * time.Second
	lingerPause2 = 250 * time.Millisecond
	// lingerBytes is how much of it is read, besides twice the limit.
	lingerBytes = 64 << 20
)

// bodyTooLarge is the error of a request whose body is over the limit.
func bodyTooLarge(limit int64) *api.Error {
	return &api.Error{
		Kind: api.KindRefused, Status: http.StatusRequestEntityTooLarge,
		Message: fmt.Sprintf("the request is larger than %d bytes; limits.body can raise that", limit),
	}
}

// restWait is how long the rest of a request may take to come whose answer is an
// error.
const restWait = 2 * time.Second

// hurry bounds how long an answer waits for the rest of its request, which
// net/http reads first: a connection must not be had by whoever sends nothing.
func hurry(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(restWait))
}

// refuseLarge answers a request that is too large and then reads on for a while.
// Many clients read no answer before they have sent everything, and a connection
// that is closed with bytes unread is reset: the answer would be lost.
func (g *Gateway) refuseLarge(w http.ResponseWriter, r *http.Request, err error) {
	ctl := http.NewResponseController(w)
	_ = ctl.EnableFullDuplex() // or nothing can be read after the answer
	pause := lingerPause2
	if r.ProtoMajor == 1 {
		pause = lingerPause
		w.Header().Set("Connection", "close")
	}
	if b, err := json.Marshal(asError(err)); err == nil {
		w.Header().Set("Content-Length", strconv.Itoa(len(b)+1)) // its end is known before the connection's
	}
	refuseError(w, err)
	if ctl.Flush() != nil || strings.EqualFold(r.Header.Get("Expect"), "100-continue") {
		return // gone, or it sends nothing after this answer
	}
	left := 2*g.edge.Load().body + lingerBytes
	until := time.Now().Add(lingerFor)
	buf := make([]byte, 32<<10)
	for left > 0 && g.open.Err() == nil {
		now := time.Now()
		if now.After(until) || ctl.SetReadDeadline(now.Add(min(pause, until.Sub(now)))) != nil {
			return
		}
		n, err := r.Body.Read(buf)
		if err != nil {
			return
		}
		left -= int64(n)
	}
}
