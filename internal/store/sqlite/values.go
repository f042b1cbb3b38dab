package sqlite

import (
	"encoding/json"
	"time"
)

// Times are kept as nanoseconds since 1970 in UTC; 0 is the zero time.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func fromNanos(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

// raw keeps an empty message as NULL.
func raw(m json.RawMessage) any {
	if len(m) == 0 {
		return nil
	}
	return []byte(m)
}
