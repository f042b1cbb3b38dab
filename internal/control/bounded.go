package control

import (
	"errors"
	"io"
	"sync"
)

// bounded is how much several writers may write together.
type bounded struct {
	mu     sync.Mutex
	left   int64
	cancel func()
}

type boundedWriter struct {
	b *bounded
	w io.Writer
}

var errTooMuch = errors.New("it is too much")

func (w *boundedWriter) Write(p []byte) (int, error) {
	w.b.mu.Lock()
	n := min(int64(len(p)), w.b.left)
	w.b.left -= n
	over := n < int64(len(p))
	w.b.mu.Unlock()
	if n > 0 {
		if _, err := w.w.Write(p[:n]); err != nil {
			return 0, err
		}
	}
	if over {
		w.b.cancel()
		return int(n), errTooMuch
	}
	return len(p), nil
}
