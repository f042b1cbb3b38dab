package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/store/journal"
)

// MethodAnnotation is the method of annotations in the journal, where they stand among
// the calls of their session. Name is the call that one is of.
const MethodAnnotation = "tine/annotation"

// An annotation's params in the journal. Once is the mark of the request, where it had
// an idempotency key: a request that is repeated after a kill is written twice, and
// counts once.
type annotated struct {
	Arguments api.NewAnnotation `json:"arguments"`
	Once      string            `json:"once,omitempty"`
}

// Annotate writes an annotation of a principal into the journal. It is kept whole
// whatever the journal modes of servers are, or refused.
func (o *Options) Annotate(principal, session string, a api.NewAnnotation, once string) (journal.Entry, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(annotated{a, once}); err != nil {
		return journal.Entry{}, fmt.Errorf("writing an annotation: %w", err)
	}
	e := journal.Entry{
		At: time.Now(), Principal: principal, Session: session, Method: MethodAnnotation, Name: a.Call,
		Outcome: api.OutcomeOK, Mode: config.JournalFull, Params: bytes.TrimSpace(b.Bytes()),
	}
	if !o.Journal.Keeps(&e) {
		return e, &api.Error{
			Kind: api.KindInvalid, Message: fmt.Sprintf("the annotation has %d bytes, more than the journal keeps; raise journal.max_size", len(e.Params)),
		}
	}
	err := o.Journal.Append(&e)
	if err != nil {
		o.Metrics.JournalError()
		return e, &api.Error{Kind: api.KindInfrastructure, Retryable: true, Message: fmt.Sprintf("the annotation is not in the journal: %v", err)}
	}
	return e, nil
}

// ReadAnnotation reads what Annotate wrote. Same is equal for the same request with the
// same idempotency key, and nil without one.
func ReadAnnotation(e *journal.Entry) (a api.NewAnnotation, same *[sha256.Size]byte, err error) {
	var in annotated
	if err := json.Unmarshal(e.Params, &in); err != nil {
		return a, nil, fmt.Errorf("annotation %s: %w", e.ID, err)
	}
	if in.Once != "" {
		sum := sha256.Sum256(e.Params)
		same = &sum
	}
	return in.Arguments, same, nil
}
