//go:build linux && (amd64 || arm64)

package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/torture"
)

// TestSandboxWarm opens sessions on instances that stand ready: they are those
// that were made ahead of time, others take their place, and each is new to who
// gets it.
func TestSandboxWarm(t *testing.T) {
	t.Parallel()
	w := startCell(t, "servers:\n"+yamlSand(t, nil, "sandbox: {slots: 0}", "warm: 3", "on_fork: notify"))
	becomes(t, w.gateway, "tine_pool_ready", sand, 3)
	becomes(t, w.gateway, "tine_pool_live", sand, 0)
	ready := w.ready()
	c := w.client(t)
	var all []api.OpenedSession
	for range 7 {
		all = append(all, *openSession(t, c, api.NewSession{}))
	}
	var was life
	drawn := map[string]bool{}
	for n, s := range all {
		if n == 0 {
			was = mustLive(t, c, s.ID)
			was.Ticks = 0 // each has its own
			if taken := w.taken(ready); taken != 1 {
				t.Errorf("of the instances that stood ready the first session has %d, want one", taken)
			}
		}
		goesOn(t, c, s.ID, was)
		sandShelf.mustHold(t, c, s.ID, map[string]string{})
		sandShelf.mustPut(t, c, s.ID, "own", s.ID)
		drawn[mustUse(t, c, s.ID, "sand__draw", object{})] = true
	}
	if was.Handshakes != 1 || was.Forked != 1 || len(drawn) != len(all) {
		t.Errorf("an instance that stood ready says %+v of itself, and %d sessions drew %v; want one handshake, and to have heard that it is a copy", was, len(all), drawn)
	}
	for dir := range w.note() {
		if said, err := os.ReadFile(filepath.Join(dir, "stderr")); err != nil || strings.Contains(string(said), "begins") {
			t.Errorf("an instance was started for a session, while others stood ready: %s %v", said, err)
		}
	}
	becomes(t, w.gateway, "tine_pool_live", sand, len(all))
	becomes(t, w.gateway, "tine_pool_ready", sand, 3)
	for _, s := range all {
		sandShelf.mustHold(t, c, s.ID, map[string]string{"own": s.ID})
	}
	for _, s := range all[1:] {
		if err := c.CloseSession(t.Context(), s.ID); err != nil {
			t.Error(err)
		}
	}
	becomes(t, w.gateway, "tine_pool_live", sand, 1)
	// A fork of one that was ready is of what it is now.
	child := fork(t, c, all[0].ID, 1)[0].ID
	sandShelf.mustHold(t, c, child, map[string]string{"own": all[0].ID})
	w.over(t)
}

// ready are the processes of the sandboxes that were made ahead of time, where there
// are none but such of a snapshot.
func (w *cell) ready() map[int]bool {
	pids := map[int]bool{}
	records, _ := filepath.Glob(filepath.Join(w.state(), "sandbox/slots/*/sandbox.json"))
	for _, path := range records {
		var r struct{ PID int }
		if data, err := os.ReadFile(path); err == nil && json.Unmarshal(data, &r) == nil && r.PID > 0 {
			pids[r.PID] = true
		}
	}
	return pids
}

// taken counts those of them that sessions use by now.
func (w *cell) taken(ready map[int]bool) (n int) {
	for _, pid := range w.note() {
		if ready[pid] {
			n++
		}
	}
	return n
}

// TestSandboxAhead forks a server that is copied after each call, with pauses of
// all lengths between calls and forks: a child has all that was answered before
// the fork, and nothing that was asked for after it.
func TestSandboxAhead(t *testing.T) {
	t.Parallel()
	w := startCell(t, "servers:\n"+yamlSand(t, nil, "sandbox: {slots: 0}", "fork_ahead: true"))
	c := w.client(t)
	parent := openSession(t, c, api.NewSession{}).ID
	want := map[string]string{}
	put := func(n int) {
		key := fmt.Sprint("k", n%7)
		want[key] = fmt.Sprint("v", n)
		sandShelf.mustPut(t, c, parent, key, want[key])
	}
	put(0)
	was := mustLive(t, c, parent)
	check := func(what string, children []api.OpenedSession, want map[string]string) {
		t.Helper()
		for _, child := range children {
			got, err := sandShelf.all(t.Context(), sandShelf.on(c, child.ID))
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if d := differ(got, want); d != "" {
				t.Errorf("%s: child %s:%s", what, child.ID, d)
			}
			goesOn(t, c, child.ID, was)
			if err := c.CloseSession(t.Context(), child.ID); err != nil {
				t.Error(err)
			}
		}
	}
	// With a copy there, it is used, and again, and thrown away when it is old.
	becomes(t, w.gateway, "tine_pool_ready", sand, 1)
	ready := w.ready()
	children := fork(t, c, parent, 1)
	if taken := w.taken(ready); taken != 1 {
		t.Errorf("a fork took %d of the copies that were there, want one", taken)
	}
	check("a copy that is there", children, want)
	check("and once more", fork(t, c, parent, 3), want)
	becomes(t, w.gateway, "tine_pool_ready", sand, 1)
	put(1)
	check("a write in between", fork(t, c, parent, 1), want)

	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	for n := 2; n < torture.Or(12, 30) && !t.Failed(); n++ {
		for range random.IntN(3) {
			put(n)
		}
		if random.IntN(3) > 0 {
			time.Sleep(time.Duration(random.IntN(120)) * time.Millisecond) // long enough for a copy, or just not
		}
		if random.IntN(2) == 0 {
			check(fmt.Sprint("step ", n), fork(t, c, parent, 1+random.IntN(2)), want)
			continue
		}
		// A write at the same time is in a child as a whole or not at all.
		late := maps.Clone(want)
		late["late"] = fmt.Sprint(n)
		var wg sync.WaitGroup
		wg.Go(func() {
			time.Sleep(time.Duration(n%5) * time.Millisecond) // before the fork, during or after it
			if err := sandShelf.put(t.Context(), sandShelf.on(c, parent), "late", late["late"], false); err != nil {
				t.Error(err)
			}
		})
		child := fork(t, c, parent, 1)
		wg.Wait()
		got, err := sandShelf.all(t.Context(), sandShelf.on(c, child[0].ID))
		if err != nil {
			t.Fatal(err)
		}
		if maps.Equal(got, late) {
			check("with what came at once", child, late)
		} else {
			check("without what came at once", child, want)
		}
		want = late
	}
	sandShelf.mustHold(t, c, parent, want)
	goesOn(t, c, parent, was)
	w.over(t)
}

// TestSandboxParked leaves sessions alone until they are parked: they use
// next to nothing of the processors, against what they use just before and after
// though they do as little, and a call wakes each with all that it had.
func TestSandboxParked(t *testing.T) {
	t.Parallel()
	sessions := torture.Or(10, 30)
	w := startCell(t, "servers:\n"+yamlSand(t, nil))
	c := w.client(t)
	parent := openSession(t, c, api.NewSession{})
	sandShelf.mustPut(t, c, parent.ID, "k", "v")
	was := mustLive(t, c, parent.ID)
	all := append(fork(t, c, parent.ID, sessions-1), *parent)
	each(t, all, func(_ int, id string) error {
		return sandShelf.put(t.Context(), sandShelf.on(c, id), "own", id, false)
	})
	becomes(t, w.gateway, "tine_pool_live", sand, sessions)
	becomes(t, w.gateway, "tine_pool_parked", sand, sessions)
	parked := used(t, w)
	becomes(t, w.gateway, "tine_pool_parked", sand, sessions) // all the time
	wake := func() {
		each(t, all, func(_ int, id string) error {
			goesOn(t, c, id, was)
			got, err := sandShelf.all(t.Context(), sandShelf.on(c, id))
			if d := differ(got, map[string]string{"k": "v", "own": id}); err == nil && d != "" {
				err = fmt.Errorf("%s: %s", id, d)
			}
			return err
		})
	}
	wake()
	if n, err := gauge(t.Context(), w.gateway, "tine_pool_parked", sand); err != nil || n > 0 {
		t.Errorf("%d instances are parked after a call of each, %v", n, err)
	}
	live := used(t, w)
	t.Logf("%d sessions used %d jiffies parked, and %d in the same time when they were not", sessions, parked, live)
	if live == 0 || 20*parked > live {
		t.Errorf("parked sessions use %d jiffies, which is not next to nothing of %d", parked, live)
	}
	// A fork of one that is parked, and one whose turn to be parked it is.
	becomes(t, w.gateway, "tine_pool_parked", sand, sessions)
	child := fork(t, c, all[0].ID, 1)[0].ID
	sandShelf.mustHold(t, c, child, map[string]string{"k": "v", "own": all[0].ID})
	goesOn(t, c, child, was)
	w.over(t)
}

// TestSandboxSlow has a server that takes longer for its hello, its list and a call
// than one that does nothing is left running: it is not parked meanwhile.
func TestSandboxSlow(t *testing.T) {
	t.Parallel()
	const slow = 7 * time.Second
	w := startCell(t, "limits: {list_wait: 60s}\nservers:\n"+yamlSand(t, []string{"-slow", slow.String()}))
	c := w.client(t)
	s := openSession(t, c, api.NewSession{}).ID
	if got := mustUse(t, c, s, "sand__put", object{"key": "k", "value": "v", "ms": slow.Milliseconds()}); got != "v" {
		t.Errorf("a slow call answers %q", got)
	}
	r, err := w.record()
	if err != nil {
		t.Fatal(err)
	}
	view, err := open(t.Context(), w.url+"/s/"+s+"/mcp/"+sand, bearer(r.Token))
	if err != nil {
		t.Fatal(err)
	}
	if names, err := view.tools(t.Context()); err != nil || !slices.Contains(names, "put") {
		t.Errorf("the tools are %v, %v", names, err)
	}
	w.over(t)
}

// used is how many jiffies the sandboxes of a gateway use while they are idle
// for two seconds, with all that runs in them.
func used(t testing.TB, w *cell) int {
	t.Helper()
	spent := func() int {
		parents, ticks := map[int]int{}, map[int]int{}
		stats, _ := filepath.Glob("/proc/[0-9]*/stat")
		for _, path := range stats {
			data, err := os.ReadFile(path)
			if err != nil {
				continue // it has ended
			}
			_, rest, ok := strings.Cut(string(data), ") ")
			f := strings.Fields(rest)
			if !ok || len(f) < 13 {
				t.Fatalf("%s: %q", path, data)
			}
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			parents[pid], _ = strconv.Atoi(f[1])
			user, _ := strconv.Atoi(f[11])
			system, _ := strconv.Atoi(f[12])
			ticks[pid] = user + system
		}
		boxes := map[int]bool{}
		for _, pid := range w.note() {
			boxes[pid] = true
		}
		sum := 0
		for pid := range ticks {
			for at := pid; at > 1; at = parents[at] {
				if boxes[at] {
					sum += ticks[pid]
					break
				}
			}
		}
		return sum
	}
	before := spent()
	time.Sleep(2 * time.Second) // what is measured is the time that passes
	return spent() - before
}
