package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/tine-mcp/tine/api"
)

const (
	// progressAfter is how long nothing is shown: most things are done by then.
	progressAfter = 300 * time.Millisecond
	// progressEvery is the time between two updates.
	progressEvery = 100 * time.Millisecond
	// atOnce is how many requests of one command run at once.
	atOnce = 16
)

// progress shows the progress of something in one line of a terminal. Elsewhere it
// shows nothing. Its methods may run at once.
type progress struct {
	c    *cli
	text func(done int64) string

	mu      sync.Mutex
	done    int64
	next    time.Time // when to draw again
	drawn   int       // characters on the line
	stopped bool
}

func (c *cli) progress(text func(done int64) string) *progress {
	return &progress{c: c, text: text, next: c.now().Add(progressAfter)}
}

// counting is the progress of so many things.
func (c *cli) counting(what string, total int) *progress {
	return c.progress(func(done int64) string { return fmt.Sprintf("%s %d of %d", what, done, total) })
}

// add says that so much more is done.
func (p *progress) add(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += n
	if p.stopped || !p.c.errTerminal || p.c.now().Before(p.next) {
		return
	}
	p.next = p.c.now().Add(progressEvery)
	p.draw(p.text(p.done))
}

// draw replaces the last text. Escape sequences would be shorter, but do not work
// on every terminal.
func (p *progress) draw(text string) {
	if p.c.width > 1 {
		text = cut(text, p.c.width-1)
	}
	n := utf8.RuneCountInString(text)
	fmt.Fprint(p.c.stderr, "\r"+text+strings.Repeat(" ", max(0, p.drawn-n)))
	p.drawn = n
}

// stop clears the line for later output. It may be called twice.
func (p *progress) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn > 0 {
		p.draw("")
		fmt.Fprint(p.c.stderr, "\r")
	}
	p.stopped = true
}

// waiting does something that may take long in one piece, and shows that on a
// terminal.
func (c *cli) waiting(ctx context.Context, what string, do func()) {
	c.waitingText(ctx, func(context.Context) string { return what }, do)
}

// waitingText is waiting with a text that changes.
func (c *cli) waitingText(ctx context.Context, what func(context.Context) string, do func()) {
	if !c.errTerminal {
		do()
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	p := c.progress(nil)
	var wg sync.WaitGroup
	wg.Go(func() {
		for pause, passed := progressAfter, time.Duration(0); ; {
			select {
			case <-ctx.Done():
				return
			case <-c.after(pause):
			}
			passed += pause
			text := what(ctx)
			p.mu.Lock()
			p.draw(visible(fmt.Sprintf("%s (%s)", text, passed.Truncate(time.Second)), true))
			p.mu.Unlock()
			pause = time.Second
		}
	})
	do()
	cancel()
	wg.Wait()
	p.stop()
}

// progressText is the progress that a server reports.
func progressText(p api.CallProgress) string {
	number := func(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
	if p.Progress < 0 && p.Message != "" { // of the gateway, before the server has begun
		return cut(oneLine(p.Message), mostProgress)
	}
	text := number(p.Progress)
	if p.Total > 0 {
		text += " of " + number(p.Total)
	}
	if message := oneLine(p.Message); message != "" {
		text += ", " + cut(message, mostProgress)
	}
	return text
}

// mostProgress is how many characters of a server's message are shown.
const mostProgress = 200

// tracked counts the bytes that are read.
type tracked struct {
	io.Reader
	p *progress
}

func (t tracked) Read(b []byte) (int, error) {
	n, err := t.Reader.Read(b)
	t.p.add(int64(n))
	return n, err
}

// inParallel does n things, some of them at once. After the first failure none is
// begun; running ones are waited for, so that all effects are known.
func inParallel(ctx context.Context, n int, do func(i int) error) error {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		next  int
		first error
	)
	take := func() (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		if first == nil {
			first = ctx.Err()
		}
		if first != nil || next == n {
			return 0, false
		}
		next++
		return next - 1, true
	}
	for range min(n, atOnce) {
		wg.Go(func() {
			for i, ok := take(); ok; i, ok = take() {
				if err := do(i); err != nil {
					mu.Lock()
					if first == nil {
						first = err
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return first
}
