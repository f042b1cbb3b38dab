package docker

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/moby/moby/client"

	"github.com/tine-mcp/tine/internal/driver/life"
)

// TestPauseIsTriedAgain: runc can't pause a container while the kernel is busy with one
// of its processes, and can a moment later.
func TestPauseIsTriedAgain(t *testing.T) {
	for _, test := range []struct {
		fails, status int
		tries         int32
		works         bool
	}{
		{1, http.StatusInternalServerError, 2, true},
		{100, http.StatusInternalServerError, pauseTries, false},
		{100, http.StatusConflict, 1, false},
	} {
		var tries atomic.Int32
		ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			switch {
			case strings.HasSuffix(r.URL.Path, "/_ping"):
				w.Header().Set("Api-Version", "1.44")
			case !strings.HasSuffix(r.URL.Path, "/pause"):
				fmt.Fprint(w, `{"Id":"c","State":{"Status":"running","Running":true}}`)
			case int(tries.Add(1)) <= test.fails:
				w.WriteHeader(test.status)
				fmt.Fprint(w, `{"message":"runc pause failed: exit status 1"}`)
			default:
				w.WriteHeader(http.StatusNoContent)
			}
		}))
		cli, err := client.New(client.WithHost("tcp://" + ts.Listener.Addr().String()))
		if err != nil {
			t.Fatal(err)
		}
		i := &instance{e: &engine{cli: cli}, rec: record{Name: "c"}, Life: life.New("a")}
		err = i.freeze(t.Context())
		if (err == nil) != test.works || tries.Load() != test.tries {
			t.Errorf("%+v: %d tries, %v", test, tries.Load(), err)
		}
		cli.Close()
		ts.Close()
	}
}
