package main

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// createTries and createPause say how often and when something is asked for again
// whose answer did not come.
const (
	createTries = 5
	createPause = time.Second
)

// once creates something at the gateway. When the connection breaks before the
// answer it asks again with the same key, so that what was created is known and
// is not created twice.
func once[T any](ctx context.Context, c *cli, create func(client.CreateOption) (T, error)) (T, error) {
	key := client.Once(rand.Text())
	for try, unsure := 1, false; ; try++ {
		v, err := create(key)
		unsure = unsure || brokenOff(err)
		if err == nil || try == createTries || !unsure || !(brokenOff(err) || underWay(err) || errors.Is(err, client.ErrNoGateway)) {
			return v, err
		}
		select {
		case <-ctx.Done():
			return v, ctx.Err()
		case <-c.after(createPause):
		}
	}
}

// brokenOff reports whether a request may have been carried out although there
// was no answer.
func brokenOff(err error) bool {
	var (
		ae *api.Error
		op *net.OpError
	)
	if err == nil || errors.As(err, &ae) || errors.Is(err, client.ErrNoGateway) || errors.Is(err, context.Canceled) {
		return false
	}
	return errors.As(err, &op) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// underWay reports whether the first request with a key goes on.
func underWay(err error) bool {
	var ae *api.Error
	return errors.As(err, &ae) && ae.Status == http.StatusConflict && ae.Retryable
}
