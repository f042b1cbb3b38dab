package policy

import (
	"errors"
	"strconv"
	"time"

	"github.com/tine-mcp/tine/internal/wire"
)

// described is what a result says about caching.
type described struct {
	complete bool // it is an answer, and readable
	failed   bool // isError
	public   bool
	ttl      time.Duration
	ttlAt    wire.Span
}

var errTwice = errors.New("a key stands twice")

func describe(result []byte) described {
	d := described{complete: true}
	var seen [4]bool
	once := func(i int) error {
		if seen[i] {
			return errTwice
		}
		seen[i] = true
		return nil
	}
	err := wire.Members(result, func(key string, val wire.Span) error {
		raw := val.Of(result)
		switch key {
		case "ttlMs":
			// An unreadable value counts as zero: not to be cached.
			d.ttlAt = val
			if ms, err := strconv.ParseFloat(string(raw), 64); err == nil && ms > 0 {
				d.ttl = time.Duration(min(ms, float64(maxListTTL.Milliseconds()))) * time.Millisecond
			}
			return once(0)
		case "cacheScope":
			s, _ := wire.Unquote(raw)
			d.public = s == "public"
			return once(1)
		case "resultType":
			s, _ := wire.Unquote(raw)
			d.complete = s == wire.ResultTypeComplete
			return once(2)
		case "isError":
			d.failed = string(raw) != "false"
			return once(3)
		}
		return nil
	})
	if err != nil {
		return described{}
	}
	return d
}
