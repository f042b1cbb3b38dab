package builtin

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/driver"
)

// victimVar names the folder of a world for the process that dies.
const victimVar = "TINE_BUILTIN_VICTIM"

// victim plays a gateway that is killed: four sessions, two of which are forks, get
// writes without end, and each answered one is printed.
func victim(dir string) {
	w := &world{dir: dir}
	die := func(err error) {
		fmt.Println("error", err)
		os.Exit(1)
	}
	if err := w.open(states(w)); err != nil {
		die(err)
	}
	var out sync.Mutex
	for i := range 4 {
		go func() {
			name := fmt.Sprint("s", i)
			inst, err := w.Start(context.Background(), w.spec(name))
			if err != nil {
				die(err)
			}
			cs, err := attach(inst)
			if err != nil {
				die(err)
			}
			for n := 0; ; n++ {
				entity := fmt.Sprintf("%s-%d-%d", name, os.Getpid(), n)
				if err := remember(cs, entity); err != nil {
					die(err)
				}
				out.Lock()
				fmt.Println(name, entity)
				out.Unlock()
				if n%16 == i { // a crash may fall into a seal, too
					s, err := w.Freeze(context.Background(), w.spec(name), nil, "")
					if err == nil {
						err = w.Discard(context.Background(), s)
					}
					if err != nil {
						die(err)
					}
				}
			}
		}()
	}
	select {}
}

func states(w *world) []string {
	var all []string
	for i := range 4 {
		all = append(all, w.state(fmt.Sprint("s", i)))
	}
	return all
}

// TestKill kills a process in the middle of its work, several times on the same
// states: everything that was answered is there, in order.
func TestKill(t *testing.T) {
	w := newWorld(t)
	w.seed("s0", nil)
	w.seed("s1", nil)
	w.add("s0", "before")
	snap := w.freeze("s0")
	w.seed("s2", &snap)
	w.seed("s3", &snap)
	w.discard(snap)
	want := map[string][]string{"s0": {"before"}, "s2": {"before"}, "s3": {"before"}}
	for round := range 5 {
		w.close()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), victimVar+"="+w.dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewScanner(out)
		for n := 0; in.Scan(); n++ {
			name, entity, _ := strings.Cut(in.Text(), " ")
			if name == "error" {
				t.Errorf("the victim fails: %s", entity)
			}
			want[name] = append(want[name], entity)
			if n == 50+100*round {
				cmd.Process.Kill() // what it has printed until then still counts
			}
		}
		cmd.Wait()
		if t.Failed() {
			return
		}
		w.again(states(w))
		for i := range 4 {
			name := fmt.Sprint("s", i)
			w.use(name, func(_ driver.Instance, cs *mcp.ClientSession) {
				got, err := recall(cs)
				if err != nil {
					t.Fatal(err)
				}
				// One more may have been written and not been answered any more.
				if n := len(want[name]); len(got) < n || len(got) > n+1 || !slices.Equal(got[:n], want[name]) {
					t.Errorf("round %d: %s knows %d, not the %d that were acknowledged", round, name, len(got), n)
				}
				want[name] = got
			})
		}
	}
}
