package session

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/session/catalog"
)

// readier is a driver of which only what stands ready is asked.
type readier struct {
	driver.Driver
	driver.Preparer
	asked *[]int
}

func (r readier) Ready(_ driver.Spec, _ driver.Snapshot, n int) error {
	*r.asked = append(*r.asked, n)
	return nil
}

// A spare is removed once: when it is retired and no longer used.
func TestSpareIsRemovedByItsLastUser(t *testing.T) {
	for steps, removed := range map[string]bool{
		"use":                                false,
		"use release":                        false,
		"retire":                             true,
		"retire retire":                      true,
		"use retire":                         false,
		"use retire retire":                  false,
		"use use retire release":             false,
		"use retire release":                 true,
		"use retire release retire":          true,
		"use use retire release release":     true,
		"use release use release retire":     true,
		"use release retire retire":          true,
		"use use release retire use release": false,
	} {
		t.Run(steps, func(t *testing.T) {
			var asked []int
			r := &Registry{o: Options{Log: slog.New(slog.DiscardHandler)}}
			k := newStock(r)
			dir := filepath.Join(t.TempDir(), "spare")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			sp := &spare{e: &catalog.Entry{Runner: readier{asked: &asked}}, snap: &driver.Snapshot{}, dir: dir, held: 5}
			r.budget.takeAhead(need{memory: 5})
			for step := range strings.FieldsSeq(steps) {
				map[string]func(){
					"use":     func() { k.use(sp) },
					"release": func() { k.release(sp) },
					"retire":  func() { k.retire(nil, sp) },
				}[step]()
			}
			_, err := os.Stat(dir)
			if os.IsNotExist(err) != removed {
				t.Errorf("the folder: %v", err)
			}
			if removed && (len(asked) != 1 || asked[0] != 0) || !removed && len(asked) > 0 {
				t.Errorf("the driver was asked for %v", asked)
			}
			if free := r.budget.used.memory == 0; free != removed {
				t.Errorf("%d of the budget are held", r.budget.used.memory)
			}
		})
	}
}

// A server that is taken out of the config before its making begins is not made.
func TestRetiredWarmIsNotMade(t *testing.T) {
	r := &Registry{o: Options{Log: slog.New(slog.DiscardHandler)}, life: context.Background()}
	k := newStock(r)
	w := k.newWarm(&catalog.Entry{})
	k.retireWarm(w)
	k.making <- struct{}{} // no maker may get as far as to wait for this
	k.build(w)
	if w.users != 0 || w.snap != nil {
		t.Errorf("%d users, %v", w.users, w.snap)
	}
}
