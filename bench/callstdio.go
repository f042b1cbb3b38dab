package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"
)

// stdioLink speaks JSON-RPC lines with one process. Many callers share it, as
// they share one stdio server behind a gateway.
type stdioLink struct {
	script *script

	writeMu sync.Mutex
	in      io.WriteCloser

	mu      sync.Mutex
	waiting map[string]chan []byte
	err     error
	done    chan struct{} // closed when the reader has ended, after err is set
}

// newStdioLink takes over both ends of a server's pipes. It ends when the server
// closes its output.
func newStdioLink(in io.WriteCloser, out io.Reader, tool string, payload int) *stdioLink {
	l := &stdioLink{
		script:  newScript(legacyEra, tool, payload),
		in:      in,
		waiting: map[string]chan []byte{},
		done:    make(chan struct{}),
	}
	go l.read(out)
	return l
}

func (l *stdioLink) handshake(ctx context.Context) error {
	if _, err := l.roundTrip(ctx, "0", []byte(initializeBody)); err != nil {
		return fmt.Errorf("initialize over stdio: %w", err)
	}
	if err := l.write([]byte(initializedBody)); err != nil {
		return fmt.Errorf("notifications/initialized over stdio: %w", err)
	}
	return nil
}

func (l *stdioLink) read(out io.Reader) {
	err := l.readLines(bufio.NewReaderSize(out, 64<<10))
	l.mu.Lock()
	l.err = fmt.Errorf("the stdio server is gone: %w", err)
	l.mu.Unlock()
	close(l.done)
}

func (l *stdioLink) readLines(r *bufio.Reader) error {
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return err
		}
		var head struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if err := json.Unmarshal(line, &head); err != nil {
			return fmt.Errorf("a line is not JSON: %w: %.200s", err, line)
		}
		if head.Method != "" {
			if err := l.refuse(head.ID); err != nil {
				return err
			}
			continue
		}
		l.mu.Lock()
		ch, ok := l.waiting[string(head.ID)]
		delete(l.waiting, string(head.ID))
		l.mu.Unlock()
		if !ok {
			return fmt.Errorf("an answer belongs to no call: %.200s", line)
		}
		ch <- line
	}
}

// refuse answers a server's request; a notification has no id and needs none.
func (l *stdioLink) refuse(id json.RawMessage) error {
	if id == nil {
		return nil
	}
	return l.write(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"bench answers nothing"}}`, id))
}

func (l *stdioLink) write(message []byte) error {
	l.writeMu.Lock()
	defer l.writeMu.Unlock()
	if f, ok := l.in.(*os.File); ok {
		// A server that does not read must not hang the run. Where pipes have no
		// deadlines nothing is lost.
		_ = f.SetWriteDeadline(time.Now().Add(callTimeout))
	}
	_, err := l.in.Write(append(message, '\n'))
	return err
}

func (l *stdioLink) roundTrip(ctx context.Context, id string, message []byte) ([]byte, error) {
	ch := make(chan []byte, 1)
	l.mu.Lock()
	l.waiting[id] = ch
	l.mu.Unlock()
	if err := l.write(message); err != nil {
		return nil, err
	}
	select {
	case line := <-ch:
		return line, nil
	case <-l.done:
		return nil, l.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// stdioCaller is one of the callers on a link. Closing it leaves the link.
type stdioCaller struct{ link *stdioLink }

func (c stdioCaller) call(ctx context.Context, id uint64) error {
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, errors.New("no answer in "+callTimeout.String()))
	defer cancel()
	line, err := c.link.roundTrip(ctx, strconv.FormatUint(id, 10), c.link.script.call(id))
	if err != nil {
		return err
	}
	return c.link.script.check(id, line)
}

func (c stdioCaller) close() {}

// close ends the link; the reader ends with the server's output.
func (l *stdioLink) close() {
	l.in.Close()
	<-l.done
}
