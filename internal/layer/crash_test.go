package layer

import (
	"bufio"
	"encoding/json"
	"fmt"
	"github.com/tine-mcp/tine/internal/torture"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestKill runs a process that changes, forks, pins and removes states with several
// goroutines, so that layers are rewritten and merged all the time, kills it in the
// middle of that, and checks that all that it reported as done is there, and nothing
// else. Then the next process goes on from there.
func TestKill(t *testing.T) {
	rounds := torture.Or(4, 10)
	k := &killed{t: t, w: newWorld(t), States: map[string]map[string]string{}, Pins: map[string]map[string]string{}}
	for i := range workers {
		name := fmt.Sprintf("w%d", i)
		k.w.create(name, Ref{})
		k.States[name] = map[string]string{}
	}
	must(t, k.w.Close())
	for range rounds {
		k.round()
	}
	k.start()
	for name := range k.States {
		must(t, k.w.Remove(k.w.dir(name)))
	}
	for id := range k.Pins {
		must(t, k.w.Release(Ref{id}))
	}
	k.w.expectFiles(0)
	if left, _ := os.ReadDir(filepath.Join(k.w.root, "states")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

const (
	victimEnv = "TINE_LAYER_VICTIM"
	workers   = 4
)

// killed is what must be there. States and Pins hold what is in them.
type killed struct {
	t       *testing.T
	w       *world
	Round   int
	States  map[string]map[string]string
	Pins    map[string]map[string]string // several references to a layer count as one here
	pending [workers]step
}

// step is one line of the victim: it is about to do, or has done, something.
type step struct {
	Worker     int
	Done       bool
	Op         string // put, delete, fork, remove, pin, unpin, snap
	State      string
	Key, Value string
	Child, Pin string
}

func (k *killed) round() {
	k.t.Helper()
	k.Round++
	task, err := json.Marshal(k)
	must(k.t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimEnv+"="+k.w.root)
	cmd.Stdin = strings.NewReader(string(task))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(k.t, err)
	must(k.t, cmd.Start())
	defer cmd.Wait()
	defer cmd.Process.Kill()
	k.pending = [workers]step{}
	enough := 20 + rand.IntN(2000)
	lines := bufio.NewReader(out)
	for n := 0; ; n++ {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		var s step
		must(k.t, json.Unmarshal(line, &s))
		k.note(s)
		if n == enough {
			must(k.t, cmd.Process.Kill())
		}
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != -1 {
		k.t.Fatalf("the victim ended by itself: %v", err)
	}
	k.check()
}

func (k *killed) note(s step) {
	if !s.Done {
		k.pending[s.Worker] = s
		if s.Op == "unpin" { // forgotten first, then released
			delete(k.Pins, s.Pin)
		}
		return
	}
	k.pending[s.Worker] = step{}
	switch s.Op {
	case "put":
		k.States[s.State][s.Key] = s.Value
	case "delete":
		delete(k.States[s.State], s.Key)
	case "fork":
		k.States[s.Child] = maps.Clone(k.States[s.State])
	case "remove":
		delete(k.States, s.State)
	case "pin":
		k.Pins[s.Pin] = maps.Clone(k.States[s.State])
	}
}

func (k *killed) start() {
	k.t.Helper()
	k.w.start()
	// A caller writes down that there is a state when it is made, and forgets it
	// before it is removed.
	names := slices.Collect(maps.Keys(k.States))
	for _, p := range k.pending {
		name := p.Child
		if p.Op == "remove" {
			name = p.State
			names = slices.DeleteFunc(names, func(n string) bool { return n == name })
		}
		if _, err := readHead(k.w.dir(name)); err == nil && (p.Op == "fork" || p.Op == "remove") {
			names = append(names, name)
		}
	}
	var dirs []string
	for _, name := range names {
		dirs = append(dirs, k.w.dir(name))
	}
	var refs []Ref
	for id := range k.Pins {
		refs = append(refs, Ref{id})
	}
	must(k.t, k.w.Recover(dirs, refs))
	for what, err := range k.w.Broken() {
		k.t.Fatalf("%s is broken: %v", what, err)
	}
}

func (k *killed) check() {
	k.t.Helper()
	k.start()
	for _, p := range k.pending {
		switch _, err := readHead(k.w.dir(p.Child)); {
		case p.Op == "fork" && err == nil:
			k.States[p.Child] = maps.Clone(k.States[p.State])
		case p.Op == "fork":
			must(k.t, k.w.Remove(k.w.dir(p.Child)))
			os.Remove(k.w.dir(p.Child))
		}
		if _, err := readHead(k.w.dir(p.State)); p.Op == "remove" && err != nil {
			delete(k.States, p.State)
			os.Remove(k.w.dir(p.State))
		}
	}
	used := map[string]bool{}
	for name, want := range k.States {
		h := k.w.open(name)
		got := packed(contents(k.t, h.Value()))
		if !maps.Equal(got, want) && !k.half(name, got) {
			k.t.Fatalf("state %s has %v, want %v; pending was %v", name, got, want, k.pending)
		}
		k.States[name] = got
		must(k.t, h.Close())
		st := k.w.states[k.w.dir(name)]
		if st.own.end > 0 {
			used[st.own.id] = true
		}
		for _, l := range st.parent.chain() {
			used[l.id] = true
		}
	}
	for id, want := range k.Pins {
		k.w.create("from-pin", Ref{id})
		if got := packed(contents(k.t, k.w.open("from-pin").Value())); !maps.Equal(got, want) {
			k.t.Fatalf("layer %s has %v, want %v", id, got, want)
		}
		must(k.t, k.w.Remove(k.w.dir("from-pin")))
		for _, l := range k.w.layers[id].chain() {
			used[l.id] = true
		}
	}
	k.w.expectFiles(len(used))
	entries, err := os.ReadDir(filepath.Join(k.w.root, "states"))
	must(k.t, err)
	if len(entries) != len(k.States) {
		k.t.Fatalf("%d folders for %d states: %v", len(entries), len(k.States), entries)
	}
	must(k.t, k.w.Close())
}

// half tells whether got is what the pending change would make.
func (k *killed) half(name string, got map[string]string) bool {
	for _, p := range k.pending {
		if p.State != name {
			continue
		}
		want := maps.Clone(k.States[name])
		switch p.Op {
		case "put":
			want[p.Key] = p.Value
		case "delete":
			delete(want, p.Key)
		}
		if maps.Equal(got, want) {
			return true
		}
	}
	return false
}

// pack shortens what a victim writes.
func pack(value string) string {
	name := strings.TrimRight(value, "v")
	return fmt.Sprintf("%s%d", name, len(value)-len(name))
}

func packed(m map[string]string) map[string]string {
	for key, value := range m {
		m[key] = pack(value)
	}
	return m
}

// victim is the process that is killed.
func victim() {
	k := &killed{}
	if err := json.NewDecoder(os.Stdin).Decode(k); err != nil {
		panic(err)
	}
	root := os.Getenv(victimEnv)
	s, err := OpenStore(Options{Dir: filepath.Join(root, "layers"), MaxFiles: 6})
	if err != nil {
		panic(err)
	}
	s.rewriteFrom, s.mergeFrom = 16<<10, 3
	var dirs []string
	mine := make([]*worker, workers)
	for i := range mine {
		mine[i] = &worker{s: s, n: i, root: filepath.Join(root, "states"), heads: map[string]*Head[dict]{}, prefix: fmt.Sprintf("r%dw%d", k.Round, i)}
	}
	for i, name := range slices.Sorted(maps.Keys(k.States)) {
		dirs = append(dirs, filepath.Join(root, "states", name))
		mine[i%workers].heads[name] = nil
	}
	var refs []Ref
	for i, id := range slices.Sorted(maps.Keys(k.Pins)) {
		refs = append(refs, Ref{id})
		mine[i%workers].pins = append(mine[i%workers].pins, id)
	}
	if err := s.Recover(dirs, refs); err != nil {
		panic(err)
	}
	var wg sync.WaitGroup
	for _, w := range mine {
		wg.Go(w.run)
	}
	wg.Wait()
}

type worker struct {
	s      *Store
	n      int
	root   string
	prefix string
	count  int
	heads  map[string]*Head[dict] // nil: not open
	pins   []string
}

func (w *worker) run() {
	for {
		if err := w.step(); err != nil {
			fmt.Fprintln(os.Stderr, "victim:", err)
			os.Exit(1)
		}
	}
}

func say(s step) {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	os.Stdout.Write(append(b, '\n'))
}

func (w *worker) step() error {
	w.count++
	names := slices.Sorted(maps.Keys(w.heads))
	s := step{Worker: w.n, State: names[rand.IntN(len(names))], Key: fmt.Sprintf("k%d", rand.IntN(10))}
	dir := filepath.Join(w.root, s.State)
	act := rand.IntN(120)
	if act >= 20 && w.heads[s.State] == nil { // forks and removals are also of states that are not open
		h, err := Open(w.s, dir, dictMachine())
		if err != nil {
			return err
		}
		w.heads[s.State] = h
	}
	h := w.heads[s.State]
	var do func() error
	switch {
	case act < 12 && len(names) < 10:
		s.Op, s.Child = "fork", fmt.Sprintf("%sc%d", w.prefix, w.count)
		do = func() error {
			ref, err := w.s.Seal(dir)
			if err != nil {
				return err
			}
			if err := w.s.Create(filepath.Join(w.root, s.Child), ref); err != nil {
				return err
			}
			w.heads[s.Child] = nil
			return w.s.Release(ref)
		}
	case act < 20 && len(names) > 2:
		s.Op = "remove"
		delete(w.heads, s.State)
		do = func() error { return w.s.Remove(dir) }
	case act < 26 && len(w.pins) < 4:
		s.Op = "pin"
		do = func() error {
			ref, err := w.s.Seal(dir)
			if err != nil {
				return err
			}
			if ref == (Ref{}) || slices.Contains(w.pins, ref.ID) {
				s.Op = "snap"
				return w.s.Release(ref)
			}
			s.Pin = ref.ID
			w.pins = append(w.pins, ref.ID)
			return nil
		}
	case act < 30 && len(w.pins) > 0:
		s.Op, s.Pin = "unpin", w.pins[0]
		w.pins = w.pins[1:]
		do = func() error { return w.s.Release(Ref{s.Pin}) }
	case act >= 100: // turns a ring of snapshots, or leaves nothing behind
		if len(w.pins) == 4 && act >= 110 {
			s.Op, s.Pin = "unpin", w.pins[0]
			w.pins = w.pins[1:]
			do = func() error { return w.s.Release(Ref{s.Pin}) }
			break
		}
		s.Op = "snap"
		do = func() error {
			ref, err := w.s.Seal(dir)
			if err != nil {
				return err
			}
			return w.s.Release(ref)
		}
	case act < 36 && h != nil:
		s.Op = "delete"
		do = func() error { return drop(h, s.Key) }
	case h != nil:
		size := rand.IntN(300)
		if act > 95 {
			size = rand.IntN(2 * chunk)
		}
		s.Op = "put"
		value := fmt.Sprintf("%s-%d-", w.prefix, w.count) + strings.Repeat("v", size)
		s.Value = pack(value)
		do = func() error { return put(h, s.Key, value) }
	default:
		return nil
	}
	say(s)
	if err := do(); err != nil {
		return fmt.Errorf("%s of %s: %w", s.Op, s.State, err)
	}
	s.Done = true
	say(s)
	return nil
}
