package storetest

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/store"
)

func testServerLists(t *testing.T, s store.Local, reopen func() store.Local) {
	ServerLists(t, s, func() store.ServerLists { return reopen() })
}

// ServerLists tests a store of lists. reopen gives the store of a later gateway.
func ServerLists(t *testing.T, s store.ServerLists, reopen func() store.ServerLists) {
	ctx := context.Background()
	at := time.Now().UTC()
	want := []store.ServerList{
		{Key: "a", Data: []byte(`{"tools":[]}`), Changed: at},
		{Key: "a", Principal: "o'dd", Data: []byte(`{"n":12345678901234567890}`), Changed: at.Add(time.Second)},
		{Key: "b", Changed: at},
	}
	must(t, s.PutServerList(ctx, store.ServerList{Key: "a", Data: []byte(`{}`), Changed: at.Add(-time.Hour)}))
	for _, l := range want {
		must(t, s.PutServerList(ctx, l))
	}
	for range 2 {
		for _, l := range want {
			got, ok, err := s.ServerList(ctx, l.Key, l.Principal)
			if err != nil || !ok {
				t.Fatalf("%s of %q: %v, %v", l.Key, l.Principal, ok, err)
			}
			same(t, got, l)
		}
		s = reopen()
	}
	must(t, s.DeleteServerList(ctx, "a", ""))
	must(t, s.DeleteServerList(ctx, "a", ""))
	for _, gone := range []string{"", "somebody"} {
		if _, ok, err := s.ServerList(ctx, "a", gone); ok || err != nil {
			t.Errorf("of %q: %v, %v", gone, ok, err)
		}
	}
	// They are bounded: the oldest make room.
	big := bytes.Repeat([]byte("7"), store.MostServerListBytes/8)
	for i := range 10 {
		must(t, s.PutServerList(ctx, store.ServerList{Key: fmt.Sprint("big", i), Data: big, Changed: at.Add(time.Duration(i+1) * time.Minute)}))
	}
	for i := range 10 {
		if _, ok, err := s.ServerList(ctx, fmt.Sprint("big", i), ""); ok != (i >= 2) || err != nil {
			t.Errorf("big%d: %v, %v", i, ok, err)
		}
	}
}
