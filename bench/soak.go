package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// soakCommand is the first argument that asks for the long run: what does Tine
// still hold after very many calls that it did not hold after the first few?
const soakCommand = "soak"

// soakSettings is what the soak's flags say.
type soakSettings struct {
	Calls      int // in all
	First      int // after which it is looked at for the first time
	Reconnects int // of the clients; every tenth time the server is another one, too
	Callers    int
	Tine       string
}

// holdings is what a gateway holds at one moment.
type holdings struct {
	Goroutines  int
	Descriptors int
	Live        int64 // bytes of heap that the last collection found in use
	Anon        int64
}

func (h holdings) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, %.1f MB of live heap, %.1f MB anonymous", h.Goroutines, h.Descriptors, mb(h.Live), mb(h.Anon))
}

// What counts as the same. Goroutines and descriptors come and go with the
// looks themselves. Live heap is what a leak shows in: two megabytes are twenty
// bytes a call. Anonymous memory has the collector's room in it, which fills
// up with garbage to twice as much as is live, ballast included, whatever is
// called; how much of that is touched when it is looked at is chance.
const (
	sameGoroutines  = 10
	sameDescriptors = 6
	sameLive        = 2e6
	sameAnon        = 30e6
)

func (h holdings) same(first holdings) bool {
	return h.Goroutines <= first.Goroutines+sameGoroutines &&
		h.Descriptors <= first.Descriptors+sameDescriptors &&
		h.Live <= first.Live+sameLive && h.Anon <= first.Anon+sameAnon
}

func soakMain(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var s soakSettings
	fs := flag.NewFlagSet(soakCommand, flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.IntVar(&s.Calls, "calls", 100_000, "calls in all")
	fs.IntVar(&s.First, "first", 3000, "calls before the first look, which fill what is kept of calls")
	fs.IntVar(&s.Reconnects, "reconnects", 200, "how often all clients go and come again")
	fs.IntVar(&s.Callers, "callers", 8, "clients at once")
	fs.StringVar(&s.Tine, "tine", "bin/tine", "the gateway's binary")
	if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if fs.NArg() > 0 || s.Calls <= s.First || s.First < 1 || s.Reconnects < 1 || s.Callers < 1 || s.Callers > 256 {
		fmt.Fprintln(stderr, "bench: soak wants more calls than it begins with, a reconnect or more, and 1 to 256 callers")
		return 2
	}
	same, err := soak(ctx, s, stdout)
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	if !same {
		return 1
	}
	return 0
}

// soak makes the calls in as many pieces as there are reconnects and says
// whether the gateway holds the same at the end as after the first few.
func soak(ctx context.Context, s soakSettings, out io.Writer) (same bool, err error) {
	tine, err := findTine(s.Tine)
	if err != nil {
		return false, err
	}
	g, err := newRig(settings{Payload: 128, Tine: tine})
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	echo, at, err := g.role(ctx, "echo-stateful", "echo", false)
	if err != nil {
		return false, err
	}
	gate, token, err := g.serveFull(ctx, "tine-soak", "http://"+at.Addr+"/mcp")
	if err != nil {
		return false, err
	}
	open := g.dialer(legacyEra, gate.url+"/mcp/"+serverName, toolName, token)
	var ids atomic.Uint64
	piece := func(calls int) error {
		callers, err := open(ctx, s.Callers)
		if err != nil {
			return err
		}
		l := drive(ctx, callers, time.Hour, calls, &ids)
		for _, c := range callers {
			c.close()
		}
		return errors.Join(l.first, ctx.Err())
	}
	if err := piece(s.First); err != nil {
		return false, fmt.Errorf("the first calls: %w", err)
	}
	first, err := g.settle(ctx, gate)
	if err != nil {
		return false, err
	}
	fmt.Fprintf(out, "after %7d calls: %v\n", ids.Load(), first)
	began := time.Now()
	each := max(1, (s.Calls-s.First)/s.Reconnects)
	for i := range s.Reconnects {
		if i%10 == 9 {
			// The server goes and comes back at the same address, and knows nobody.
			echo.stop()
			if echo, _, err = g.role(ctx, "echo-stateful", fmt.Sprintf("echo-%d", i), false, "--listen", at.Addr); err != nil {
				return false, err
			}
		}
		if err := piece(each); err != nil {
			return false, fmt.Errorf("after %d calls and %d reconnects: %w", ids.Load(), i+1, err)
		}
		if i%50 == 49 {
			fmt.Fprintf(out, "after %7d calls, %d reconnects, %.0f s\n", ids.Load(), i+1, time.Since(began).Seconds())
		}
	}
	last, err := g.settle(ctx, gate)
	if err != nil {
		return false, err
	}
	fmt.Fprintf(out, "after %7d calls: %v\n", ids.Load(), last)
	if same = last.same(first); same {
		fmt.Fprintln(out, "the same: nothing grew")
	} else {
		fmt.Fprintln(out, "MORE than at first")
	}
	return same, nil
}

// settle looks until the gateway holds no less than at the look before: what
// ends a moment after the calls is not held.
func (g *rig) settle(ctx context.Context, gate *gatewayProcess) (holdings, error) {
	least := holdings{}
	for quiet := 0; quiet < 8; {
		h, err := g.look(ctx, gate)
		if err != nil {
			return h, err
		}
		switch {
		case least.Goroutines == 0 || h.Goroutines < least.Goroutines || h.Descriptors < least.Descriptors:
			least, quiet = h, 0
		default:
			least.Anon, least.Live = min(least.Anon, h.Anon), min(least.Live, h.Live)
			quiet++
		}
		select {
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
			return least, context.Cause(ctx)
		}
	}
	return least, nil
}

// look reads what the gateway holds out of its own metrics, and its memory from
// the kernel.
func (g *rig) look(ctx context.Context, gate *gatewayProcess) (holdings, error) {
	h := holdings{Anon: usageOf(gate.pid()).anon}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, gate.url+"/metrics", nil)
	if err != nil {
		return h, err
	}
	req.Header.Set("Authorization", "Bearer "+gate.token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return h, fmt.Errorf("read the gateway's metrics: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return h, fmt.Errorf("read the gateway's metrics: %s", res.Status)
	}
	for sc := bufio.NewScanner(res.Body); sc.Scan(); {
		name, value, _ := strings.Cut(sc.Text(), " ")
		n, _ := strconv.ParseFloat(value, 64)
		switch name {
		case "go_goroutines":
			h.Goroutines = int(n)
		case "process_open_fds":
			h.Descriptors = int(n)
		case "go_memstats_next_gc_bytes":
			h.Live = int64(n / 2) // the next one begins at twice of it
		}
	}
	if h.Goroutines == 0 {
		return h, errors.New("the gateway's metrics don't tell its goroutines")
	}
	return h, nil
}
