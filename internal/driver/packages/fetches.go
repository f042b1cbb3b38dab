package packages

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/flight"
)

const (
	// atOnce is how many fetches begin side by side: each one saturates a core while it
	// unpacks.
	atOnce = 3
	// turn is after how long one makes room for another: it is slow, or hangs.
	turn = 10 * time.Second
)

// What the log says of a fetch, wherever it fetches to.
const (
	logFetching = "fetching a package"
	logFetched  = "fetched a package"
)

// defaultTime is how long a fetch may take where no limit is set.
const defaultTime = 10 * time.Minute

// fetches are the running fetches: one for all callers that want the same, which goes on
// when they leave.
type fetches[T any] struct {
	group flight.Group[T]
	room  chan struct{} // bounds the fetches at once
	turn  time.Duration

	mu    sync.Mutex
	going map[string]*progress // by key
}

func newFetches[T any]() *fetches[T] {
	return &fetches[T]{group: flight.Group[T]{Stays: true}, room: make(chan struct{}, atOnce), turn: turn, going: make(map[string]*progress)}
}

// do joins the fetch of a key, or begins it. Its time counts from when it has room.
func (fs *fetches[T]) do(ctx context.Context, key, name string, most time.Duration, work func(context.Context, *progress) (T, error)) (T, error) {
	if most <= 0 {
		most = defaultTime
	}
	return fs.group.Do(ctx, key, func(ctx context.Context) (result T, err error) {
		p := &progress{name: name}
		fs.mu.Lock()
		fs.going[key] = p
		fs.mu.Unlock()
		defer func() {
			fs.mu.Lock()
			delete(fs.going, key)
			fs.mu.Unlock()
		}()
		select {
		case fs.room <- struct{}{}:
			leave := sync.OnceFunc(func() { <-fs.room })
			defer time.AfterFunc(fs.turn, leave).Stop()
			defer leave()
		case <-ctx.Done():
			return result, context.Cause(ctx)
		}
		ctx, cancel := context.WithTimeoutCause(ctx, most,
			fmt.Errorf("%w: it took longer than %s; check the network, or raise limits.fetch", ErrLimit, most))
		defer cancel()
		result, err = work(ctx, p)
		return result, withRetry(err)
	})
}

// of is how far the fetch of a key is; nil where there is none.
func (fs *fetches[T]) of(key string) *api.Fetch {
	fs.mu.Lock()
	p := fs.going[key]
	fs.mu.Unlock()
	if p == nil {
		return nil
	}
	return &api.Fetch{Package: p.name, Bytes: p.bytes.Load(), Total: p.total.Load()}
}

// progress is how far a fetch is.
type progress struct {
	name  string
	bytes atomic.Int64
	total atomic.Int64 // zero where it is not known
}

// set notes what was counted on the disk, or, where the installer says how much there
// is to load, what it says itself.
func (p *progress) set(counted int64, out *output) {
	if done, total := out.loaded(); total > 0 {
		p.bytes.Store(done)
		p.total.Store(total)
		return
	}
	p.bytes.Store(max(p.bytes.Load(), counted))
}

// withRetry adds to the error of a fetch whether another try can help.
func withRetry(err error) error {
	if err == nil || errors.Is(err, flight.ErrClosed) {
		return err
	}
	again := "; it may be tried again"
	for _, kind := range []error{ErrNotFound, ErrScripts, ErrNoTool, driver.ErrFinal} {
		if errors.Is(err, kind) {
			again = "; another try fails in the same way until that is changed"
			err = driver.Final(err)
			break
		}
	}
	if failed := (*fetchError)(nil); errors.As(err, &failed) {
		failed.again = again
		return err
	}
	return &fetchError{text: err.Error(), again: again, kind: err}
}

// What uv says of each file of some size that it loads.
var (
	loading = regexp.MustCompile(`^Downloading (\S+) \(([0-9.]+)(B|KiB|MiB|GiB)\)$`)
	loaded  = regexp.MustCompile(`^ ?Downloaded (\S+)$`)
)

// loads are the files that an installer says it loads.
type loads struct {
	sizes       map[string]int64
	done, total int64
}

const maxLoads = 10_000

func (l *loads) read(line string) {
	if m := loading.FindStringSubmatch(line); m != nil && len(l.sizes) < maxLoads {
		n, err := strconv.ParseFloat(m[2], 64)
		if _, twice := l.sizes[m[1]]; err != nil || twice {
			return
		}
		if l.sizes == nil {
			l.sizes = make(map[string]int64)
		}
		bytes := int64(n * map[string]float64{"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[m[3]])
		l.sizes[m[1]] = bytes
		l.total += bytes
	} else if m := loaded.FindStringSubmatch(line); m != nil {
		l.done += l.sizes[m[1]]
		if l.sizes[m[1]] > 0 {
			l.sizes[m[1]] = 0
		}
	}
}
