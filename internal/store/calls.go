package store

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tine-mcp/tine/api"
)

// Call is one line of the index of the journal: what listings filter by, and
// where the rest stands.
type Call struct {
	Seq       int64  // above zero; grows with every call; unique
	ID        string // always CallID of Seq; an index keeps none
	At        time.Time
	Principal string
	Session   string
	Run       string // of the token that the caller showed; empty for none
	Server    string
	Method    string
	Name      string
	Duration  time.Duration
	Outcome   string
	Segment   int64 // file of the journal; a call with a greater Seq stands in the same one or a later one
	Offset    int64 // of the line in it
	Length    int64
}

const (
	idPrefix = "call_"
	idDigits = 12 // at least
)

// CallID is the id of the call with this Seq: call_ and twelve hex digits, as in
// call_00000000002a.
func CallID(seq int64) string {
	var space [32]byte
	return string(AppendCallID(space[:0], seq))
}

// AppendCallID appends CallID.
func AppendCallID(b []byte, seq int64) []byte {
	b = append(b, idPrefix...)
	for n := idDigits - 1; n > 0 && seq>>(4*n) == 0; n-- {
		b = append(b, '0')
	}
	return strconv.AppendInt(b, seq, 16)
}

// CallSeq is the Seq of the call with this id; ok is false for any other text.
func CallSeq(id string) (seq int64, ok bool) {
	digits, ok := strings.CutPrefix(id, idPrefix)
	if !ok {
		return 0, false
	}
	seq, err := strconv.ParseInt(digits, 16, 64)
	// An id has one spelling.
	return seq, err == nil && seq > 0 && CallID(seq) == id
}

// CallFilter chooses calls. Zero fields choose all.
type CallFilter struct {
	ID        string  // of one call; any other text chooses none
	Principal *string // nil for all
	Session   string
	Run       string
	Server    string
	Servers   []string // only of these; nil for all
	Failed    bool
	Since     time.Time
	Before    int64 // Seq below this; zero for the newest
	Limit     int   // zero for 100
}

// Chooses says whether the filter chooses c. It does not look at c.ID.
func (f *CallFilter) Chooses(c *Call) bool {
	if f.ID != "" {
		if seq, ok := CallSeq(f.ID); !ok || c.Seq != seq {
			return false
		}
	}
	return (f.Principal == nil || c.Principal == *f.Principal) &&
		(f.Session == "" || c.Session == f.Session) &&
		(f.Run == "" || c.Run == f.Run) &&
		(f.Server == "" || c.Server == f.Server) &&
		(f.Servers == nil || slices.Contains(f.Servers, c.Server)) &&
		(!f.Failed || c.Outcome != api.OutcomeOK) &&
		(f.Since.IsZero() || !c.At.Before(f.Since)) &&
		(f.Before <= 0 || c.Seq < f.Before)
}

// Calls is the index of the journal. It may lag behind the journal, and can be
// rebuilt from it.
type Calls interface {
	// PutCalls adds calls; those whose Seq is already there are skipped. Many at
	// once, and in the order of Seq, cost the least.
	PutCalls(ctx context.Context, calls []Call) error
	// Calls returns the newest first.
	Calls(ctx context.Context, f CallFilter) ([]Call, error)
	// LastCall returns the place of the newest call that is indexed; ok is false
	// when there is none.
	LastCall(ctx context.Context) (c Call, ok bool, err error)
	// DropCalls forgets the calls of the segments below this one.
	DropCalls(ctx context.Context, below int64) error
}
