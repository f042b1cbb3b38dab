package packages

import "testing"

func TestSize(t *testing.T) {
	for bytes, want := range map[int64]string{0: "", 1: "1 KiB", 1024: "1 KiB", 1<<20 - 1: "1024 KiB", 3 << 19: "1.5 MiB"} {
		if got := size(bytes); got != want {
			t.Errorf("size(%d) = %q, want %q", bytes, got, want)
		}
	}
}
