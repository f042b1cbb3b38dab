package rlm

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
)

// program are the parts of what runs inside, which are one text.
//
//go:embed kernel/*.py
var program embed.FS

// source is that text: the parts that others need come first, and the end begins it. The
// worker's part is a string in it.
func source() string {
	worker := strconv.QuoteToASCII(parts("host", "output", "worker", "values", "pickling"))
	return parts("line") + "WORKER = " + worker + "\n" + parts("keeper")
}

func parts(names ...string) string {
	var b strings.Builder
	for _, name := range names {
		text, err := program.ReadFile("kernel/" + name + ".py")
		if err != nil {
			panic(err) // it is in the binary
		}
		b.Write(text)
		b.WriteByte('\n')
	}
	return b.String()
}

// protocol is the version of what is spoken with a kernel.
const protocol = 1

// unknownStatus stands for the exit status of a branch: the keeper sees that the branch has
// ended, but only the worker, its parent, learns the status.
const unknownStatus = 256

// A died is the error of a call whose worker ended: its variables are gone, and a new
// worker runs.
type died struct {
	status int
	reset  bool
	hung   time.Duration // after which it was restarted
}

func (e *died) Error() string {
	switch {
	case e.hung > 0:
		return fmt.Sprintf("its code ran longer than %s and could not be interrupted", e.hung)
	case e.reset:
		return "the kernel was reset by another call"
	case e.status == unknownStatus:
		return "its process ended by itself, or was killed, as happens where there is too little memory"
	case e.status == -int(syscall.SIGKILL):
		return "the kernel was killed, as happens where it needs more memory than it may have"
	case e.status < 0:
		return fmt.Sprintf("the kernel was ended by signal %d", -e.status)
	}
	return fmt.Sprintf("the kernel exited with status %d", e.status)
}

// errEnded reports that the kernel's stream has ended.
var errEnded = errors.New("the kernel has ended")

// An event is a line from the kernel.
type event struct {
	ID     int64           `json:"id"`
	Stdout string          `json:"stdout"`
	Stderr string          `json:"stderr"`
	Done   json.RawMessage `json:"done"`

	Ready  int    `json:"ready"`
	Python string `json:"python"`
	Died   *int   `json:"died"`
	Reset  bool   `json:"reset"` // it was ended in order to begin anew

	Branch int64 `json:"branch"` // that it is of; 0 for the worker itself

	Ask     int64    `json:"ask"`
	What    string   `json:"what"`
	Prompt  string   `json:"prompt"`
	Prompts []string `json:"prompts"`
}

// A kernel is the host's end of a kernel that runs.
type kernel struct {
	*branch // the worker
	stream  driver.Stream

	left func() bool // whether the client has left; nil where that is not known

	number atomic.Int64
	life   context.Context
	end    context.CancelCauseFunc
	asking sync.WaitGroup
	read   chan struct{} // closed when the reader has returned
	ready  chan event

	mu       sync.Mutex
	calls    map[int64]*call
	branches map[int64]*branch
	fell     *died // a worker that ended while no call ran, until it is asked for
}

// A branch is what runs code: the worker, or a copy of it.
type branch struct {
	k    *kernel
	n    int64         // 0 for the worker
	turn chan struct{} // held by the call that runs: code runs in order
	// ask answers what code asks the host; it may take long. It runs in a goroutine.
	ask asker
}

type asker func(ctx context.Context, e event) (any, error)

// connect begins to speak with a kernel. A fresh one is sent its program first.
func connect(ctx context.Context, stream driver.Stream, fresh bool, ask asker) (*kernel, error) {
	k := &kernel{stream: stream, read: make(chan struct{}), ready: make(chan event, 1), calls: make(map[int64]*call)}
	k.branch = &branch{k: k, turn: make(chan struct{}, 1), ask: ask}
	k.branches = map[int64]*branch{0: k.branch}
	// An adopted kernel may still send what it was asked for by an earlier gateway.
	k.number.Store(time.Now().UnixMicro())
	k.life, k.end = context.WithCancelCause(context.Background())
	go k.listen()
	if !fresh {
		// A host that was killed may have left half a line, and code that runs for no
		// caller any more.
		err := k.send(ctx, nil)
		if err == nil {
			err = k.write(ctx, keeper{Keeper: "interrupt", Adopt: true})
		}
		if err != nil {
			k.Close()
			return nil, err
		}
		return k, nil
	}
	err := k.write(ctx, map[string]any{"kernel": source()})
	if err == nil {
		select {
		case e := <-k.ready:
			if e.Ready != protocol {
				err = fmt.Errorf("the kernel speaks protocol %d, want %d", e.Ready, protocol)
			}
		case <-k.life.Done():
			err = context.Cause(k.life)
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		k.Close()
		return nil, err
	}
	return k, nil
}

// Health: while calls run the keeper is asked now and then. An idle kernel is left alone,
// as it may be parked; what ends it the driver sees.
var healthEvery = 30 * time.Second

// watch ends the conversation with a kernel that does not answer, so that another one is
// started.
func (k *kernel) watch(every time.Duration, log *slog.Logger) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-k.life.Done():
			return
		case <-tick.C:
		}
		if !k.busy() {
			continue
		}
		ctx, cancel := context.WithTimeout(k.life, every)
		err := k.ping(ctx)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			log.Warn("a kernel does not answer and is ended", "after", every)
			k.end(errEnded)
			k.stream.Close()
		}
	}
}

func (k *kernel) busy() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.calls) > 0
}

// Close ends the conversation, and not the kernel.
func (k *kernel) Close() error {
	k.end(errEnded)
	err := k.stream.Close()
	<-k.read
	k.asking.Wait()
	return err
}

func (k *kernel) write(ctx context.Context, message any) error {
	line, err := json.Marshal(message)
	if err != nil {
		return err
	}
	return k.send(ctx, line)
}

// send writes a line. Where that fails the kernel has ended, which the reader may not have
// seen yet.
func (k *kernel) send(ctx context.Context, line []byte) error {
	err := k.stream.WriteFrame(ctx, line)
	if err != nil && ctx.Err() == nil {
		k.end(errEnded)
	}
	if k.life.Err() != nil {
		return context.Cause(k.life)
	}
	return err
}

// listen passes events on to the calls that wait for them.
func (k *kernel) listen() {
	defer close(k.read)
	for {
		line, err := k.stream.ReadFrame()
		var torn *driver.StrayLine
		var large *driver.FrameTooLarge
		switch {
		case errors.As(err, &torn), errors.As(err, &large):
			continue // half a line of a worker that was killed
		case err != nil:
			k.end(errEnded)
			return
		}
		var e event
		if json.Unmarshal(line, &e) != nil {
			continue
		}
		switch {
		case e.Ready > 0:
			select {
			case k.ready <- e:
			default:
			}
		case e.Died != nil:
			k.toAll(e)
		case e.Ask > 0:
			k.asking.Go(func() { k.answer(e) })
		default:
			k.mu.Lock()
			c := k.calls[e.ID]
			k.mu.Unlock()
			if c != nil {
				c.take(e)
			}
		}
	}
}

// toAll tells the calls of a worker that it has ended. Where none runs the next one hears
// of it.
func (k *kernel) toAll(e event) {
	k.mu.Lock()
	defer k.mu.Unlock()
	ran := false
	for _, c := range k.calls {
		ran = c.branch == e.Branch && c.take(e) || ran
	}
	if !ran && !e.Reset && e.Branch == 0 {
		k.fell = &died{status: *e.Died}
	}
}

// fallen is a worker that ended while no call ran, once.
func (k *kernel) fallen() *died {
	k.mu.Lock()
	defer k.mu.Unlock()
	fell := k.fell
	k.fell = nil
	return fell
}

func (k *kernel) answer(e event) {
	k.mu.Lock()
	b := k.branches[e.Branch]
	var ask asker
	if b != nil {
		ask = b.ask
	}
	k.mu.Unlock()
	if b == nil {
		return // it has ended
	}
	reply := map[string]any{"answer": e.Ask}
	if result, err := ask(k.life, e); err != nil {
		reply["error"] = err.Error()
	} else {
		reply["result"] = result
	}
	_ = b.write(k.life, reply) // where it fails the kernel has ended
}
