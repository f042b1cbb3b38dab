package control

import (
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/identity"
)

const (
	maxForks  = 10000
	maxKeep   = 1000
	maxBefore = 64
)

// duration reads one of a request: zero where it is not given, negative for
// "0s", which is none.
func duration(field, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, Invalid("%s must be a duration like 90s, 30m or 2h, or 0s for none; %q is none", field, Clip(text))
	}
	if d == 0 {
		return -1, nil
	}
	return d, nil
}

// A spanReader reads durations of a request and remembers the first that is
// wrong.
type spanReader struct{ err error }

func (r *spanReader) read(field, text string) time.Duration {
	d, err := duration(field, text)
	if r.err == nil {
		r.err = err
	}
	return d
}

// autosnapshot reads a ring to rewind to; nil is the config's.
func autosnapshot(in *api.Autosnapshot) (*config.Autosnapshot, error) {
	if in == nil {
		return nil, nil
	}
	switch {
	case in.Every < 0:
		return nil, Invalid("autosnapshot.every must not be negative")
	case in.Keep < 0 || in.Keep > maxKeep:
		return nil, Invalid("autosnapshot.keep must be a number from 1 to %d", maxKeep)
	case len(in.Before) > maxBefore:
		return nil, Invalid("autosnapshot.before has %d patterns and may have %d", len(in.Before), maxBefore)
	}
	for _, p := range in.Before {
		if p == "" || !identity.ValidPattern(p) {
			return nil, Invalid("autosnapshot.before: %q is no tool like server__tool, nor a pattern of them", Clip(p))
		}
	}
	out := &config.Autosnapshot{Every: in.Every, Before: in.Before, Keep: in.Keep}
	if out.Keep == 0 {
		out.Keep = 8
	}
	return out, nil
}
