package store

import (
	"fmt"
	"math"
	"testing"
)

func TestCallIDs(t *testing.T) {
	for _, seq := range []int64{1, 9, 15, 16, 42, 1<<44 - 1, 1 << 44, 1<<48 - 1, 1 << 48, 1 << 60, math.MaxInt64} {
		id := CallID(seq)
		if want := fmt.Sprintf("call_%012x", seq); id != want {
			t.Errorf("%d is %s, want %s", seq, id, want)
		}
		if got, ok := CallSeq(id); !ok || got != seq {
			t.Errorf("%s is %d, %v", id, got, ok)
		}
	}
	for _, id := range []string{
		"", "call_", "call_1", "call_x", "call_000000000000", "call_-00000000001", "call_+00000000001", "call_0000000000_1", "call_00000000002A",
		"call_000000000002a", "call_00000000002a ", "Call_00000000002a", "00000000002a", "call_8000000000000000", "call_ffffffffffffffffffff",
	} {
		if seq, ok := CallSeq(id); ok {
			t.Errorf("%q is the call %d", id, seq)
		}
	}
}

func FuzzCallSeq(f *testing.F) {
	f.Add("call_00000000002a")
	f.Add("call_")
	f.Fuzz(func(t *testing.T, id string) {
		if seq, ok := CallSeq(id); ok && CallID(seq) != id {
			t.Errorf("%q is the call %d, whose id is %q", id, seq, CallID(seq))
		}
	})
}
