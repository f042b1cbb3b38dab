package sqlite

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/layer"
	"github.com/tine-mcp/tine/internal/native/nativetest"
)

const childEnv = "TINE_TEST_SQLITE_CHILD"

// childMain is the process that is killed: it makes one transaction after the
// other, and says so after each.
func childMain() bool {
	dir := os.Getenv(childEnv)
	if dir == "" {
		return false
	}
	if err := writeForEver(dir); err != nil {
		fmt.Println(err)
	}
	return true
}

func writeForEver(dir string) error {
	s, err := layer.OpenStore(layer.Options{Dir: filepath.Join(dir, "layers"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	if err := s.Recover([]string{filepath.Join(dir, "a")}, nil); err != nil {
		return err
	}
	h, err := layer.Open(s, filepath.Join(dir, "a"), Machine())
	if err != nil {
		return err
	}
	e := newEngine(h, limits{timeout: time.Minute, maxRows: 10, maxSize: 1 << 30})
	for {
		var n string
		err := e.call(context.Background(), func(ctx context.Context, c *conn) error {
			// Two tables that a whole transaction keeps the same, and a large one now
			// and then.
			x, err := c.execute(ctx, strings.NewReader(`
				INSERT INTO a VALUES (NULL, hex(randomblob(10)));
				UPDATE b SET n = (SELECT max(id) FROM a);
				INSERT INTO big SELECT zeroblob(2000) FROM (SELECT 1 FROM pragma_function_list LIMIT 200) WHERE (SELECT n % 5 FROM b) = 0;
				DELETE FROM big WHERE (SELECT n % 15 FROM b) = 0;
				SELECT n FROM b`), nil, 10)
			if err == nil {
				n = string(x.rows.data)
			}
			return err
		})
		if err != nil {
			return err
		}
		fmt.Println(n)
	}
}

// TestKill kills a process that writes, again and again: what it reported is there,
// whole, and at most the one that it was about to report.
func TestKill(t *testing.T) {
	w := newWorld(t)
	w.create("a", layer.Ref{})
	h := w.head("a")
	c := serve(t, h, nil, nil, nativetest.Modern)
	c.exec("CREATE TABLE a(id INTEGER PRIMARY KEY, x); CREATE TABLE b(n); INSERT INTO b VALUES (0); CREATE TABLE big(x)")
	h.Close()
	w.store.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(3, 3))
	for range 8 {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), childEnv+"="+w.dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		reported, stop := 0, 1+rnd.IntN(60)
		lines := bufio.NewScanner(out)
		for i := 0; lines.Scan(); i++ {
			text := strings.TrimSuffix(strings.TrimPrefix(lines.Text(), `{"n":`), "}")
			if reported, err = strconv.Atoi(text); err != nil {
				t.Fatalf("the child says %q", lines.Text())
			}
			if i == stop {
				time.Sleep(time.Duration(rnd.IntN(3000)) * time.Microsecond) // into some transaction
				cmd.Process.Kill()
			}
		}
		cmd.Wait()

		w.openStore()
		if err := w.store.Recover([]string{w.state("a")}, nil); err != nil {
			t.Fatal(err)
		}
		h := w.head("a")
		srv, closer, err := New(nil, h, nil)
		if err != nil {
			t.Fatal(err)
		}
		c := client{t, nativetest.Connect(t, srv, nativetest.Modern, nil)}
		c.want(`{"integrity_check":"ok"}`, "PRAGMA integrity_check")
		got := c.rows("SELECT (SELECT count(*) FROM a) AS a, n AS b FROM b")
		if got != fmt.Sprintf(`{"a":%d,"b":%d}`, reported, reported) && got != fmt.Sprintf(`{"a":%d,"b":%d}`, reported+1, reported+1) {
			t.Errorf("it reported %d, and there is %s", reported, got)
		}
		closeOf(t, closer)
		h.Close()
		w.store.Close()
	}
}
